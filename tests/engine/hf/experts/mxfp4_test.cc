#include "engine/hf/experts/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/hf/safetensors.h"

namespace megatrain {
namespace {

constexpr char kGolden[] = "tests/golden/mxfp4/";
constexpr char kExperts[] = "model.layers.0.mlp.experts.";

// E2M1 by its definition: a sign, two bits of exponent with a bias of 1, one of fraction; without
// an exponent the fraction has no hidden one.
double FourBits(int bits) {
  const int exponent = (bits >> 1) & 3, fraction = bits & 1;
  const double magnitude =
      exponent == 0 ? fraction * 0.5 : std::ldexp(1.0 + fraction * 0.5, exponent - 1);
  return (bits & 8) != 0 ? -magnitude : magnitude;
}

TEST(Mxfp4Test, EveryValueWithEveryScale) {
  uint8_t packed[kMxfp4BlockBytes];
  for (int i = 0; i < kMxfp4BlockBytes; ++i) packed[i] = static_cast<uint8_t>(i | (15 - i) << 4);
  for (int scale = 0; scale < 256; ++scale) {
    SCOPED_TRACE(scale);
    const auto byte = static_cast<uint8_t>(scale);
    float values[kMxfp4BlockValues];
    DecodeMxfp4(packed, &byte, 1, 1, values);
    for (int i = 0; i < kMxfp4BlockValues; ++i) {
      if (scale == kMxfp4NanScale) {
        EXPECT_TRUE(std::isnan(values[i]));
        continue;
      }
      const double value = std::ldexp(FourBits(i % 2 == 0 ? i / 2 : 15 - i / 2), scale - 127);
      EXPECT_EQ(values[i], std::abs(value) < 0x1p128 ? value : std::copysign(INFINITY, value));
      EXPECT_EQ(std::signbit(values[i]), std::signbit(value));
    }
  }
}

std::vector<uint8_t> ReadBytes(const SafetensorsReader& reader, const std::string& name,
                               std::vector<int64_t>* shape) {
  const SafetensorsTensor* const tensor = reader.Find(kExperts + name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<uint8_t> bytes(static_cast<size_t>(tensor->bytes()));
  EXPECT_TRUE(reader.Read(*tensor, 0, bytes.data(), tensor->bytes()).ok());
  *shape = tensor->shape;
  return bytes;
}

// tests/golden/make_mxfp4_reference.py.
TEST(Mxfp4Test, WhatTransformersDequantises) {
  const auto packed =
      SafetensorsReader::Open(PosixFileSystem(), kGolden + std::string("blocks.safetensors"));
  const auto wanted =
      SafetensorsReader::Open(PosixFileSystem(), kGolden + std::string("dequantised.safetensors"));
  ASSERT_TRUE(packed.ok() && wanted.ok());
  for (const std::string name : {"gate_up_proj", "down_proj"}) {
    SCOPED_TRACE(name);
    std::vector<int64_t> shape, ignored;
    const std::vector<uint8_t> scales = ReadBytes(**packed, name + "_scales", &ignored);
    const std::vector<uint8_t> blocks = ReadBytes(**packed, name + "_blocks", &ignored);
    const std::vector<uint8_t> bytes = ReadBytes(**wanted, name, &shape);
    const int64_t experts = shape[0], depth = shape[1], columns = shape[2];
    const int64_t row_blocks = depth / kMxfp4BlockValues;
    std::vector<float> values(static_cast<size_t>(experts * depth * columns));
    // Each row is a column of the result.
    for (int64_t row = 0; row < experts * columns; ++row) {
      DecodeMxfp4(&blocks[row * row_blocks * kMxfp4BlockBytes], &scales[row * row_blocks],
                  row_blocks, columns, &values[row / columns * depth * columns + row % columns]);
    }
    ASSERT_EQ(bytes.size(), values.size() * 2);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = static_cast<uint32_t>(bytes[2 * i] | bytes[2 * i + 1] << 8) << 16;
      uint32_t own;
      std::memcpy(&own, &values[i], sizeof(own));
      ASSERT_EQ(own, bits) << i;
    }
  }
}

}  // namespace
}  // namespace megatrain

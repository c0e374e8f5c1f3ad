#include "engine/hf/master_convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/memory/split_master.h"
#include "tests/engine/hf/model_fixture.h"

namespace megatrain {
namespace {

TileLayout OneTensor(int64_t elements) {
  TileLayout layout;
  layout.elements = elements;
  TensorSpec tensor;
  tensor.name = "t";
  tensor.shape = {elements};
  tensor.elements = elements;
  layout.tensors.push_back(tensor);
  return layout;
}

TEST(MasterConvertTest, F16IsExactForAllPatterns) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double sign = bits & 0x8000u ? -1.0 : 1.0;
    const float value = F16ToFloat(static_cast<uint16_t>(bits));
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), fraction != 0);
      EXPECT_FALSE(std::isfinite(value));
      continue;
    }
    const double expected =
        exponent == 0 ? sign * std::ldexp(fraction, -24)
                      : sign * std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(std::signbit(value), sign < 0) << bits;
  }
}

TEST(MasterConvertTest, KeepsEveryBitOfFp32InASplitMaster) {
  const TileLayout layout = OneTensor(4096);
  OwnedTile owned(layout, DType::kBF16);
  std::vector<uint32_t> bits(4096);
  for (uint32_t i = 0; i < bits.size(); ++i) bits[i] = i * 0x000f4243u % 0x7f7f8000u;
  EXPECT_EQ(StoreMaster(FileDType::kF32, bits.data(), 4096, owned.tile(), 0), -1);
  std::vector<uint32_t> back(4096);
  LoadMaster(owned.tile(), 0, 4096, DType::kF32, back.data());
  EXPECT_EQ(back, bits);
}

TEST(MasterConvertTest, NamesTheFirstValueThatCannotBeHeld) {
  const TileLayout layout = OneTensor(128);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    OwnedTile owned(layout, dtype);
    std::vector<float> values(8, 1.0f);
    EXPECT_EQ(StoreMaster(FileDType::kF32, values.data(), 8, owned.tile(), 4), -1);
    values[6] = std::nanf("");
    values[5] = -infinity;
    EXPECT_EQ(StoreMaster(FileDType::kF32, values.data(), 8, owned.tile(), 4), 5);
    // 3.4e38 is finite, its BF16 half is not.
    values = {1.0f, 3.4e38f, 0.0f};
    EXPECT_EQ(StoreMaster(FileDType::kF32, values.data(), 3, owned.tile(), 0),
              dtype == DType::kBF16 ? 1 : -1);
    const uint16_t f16[2] = {0x3c00, 0x7c00};
    EXPECT_EQ(StoreMaster(FileDType::kF16, f16, 2, owned.tile(), 0), 1);
    const uint16_t bf16[2] = {0x3f80, 0x7fc0};
    EXPECT_EQ(StoreMaster(FileDType::kBF16, bf16, 2, owned.tile(), 0), 1);
  }
}

TEST(MasterConvertTest, RoundsToBf16LikeASplitMaster) {
  const TileLayout layout = OneTensor(128);
  OwnedTile owned(layout, DType::kF32);
  // A tie: 1 + 2^-8 lies between 1 and 1 + 2^-7, and goes away from zero.
  const float values[2] = {1.00390625f, -1.00390625f};
  ASSERT_EQ(StoreMaster(FileDType::kF32, values, 2, owned.tile(), 0), -1);
  uint16_t rounded[2];
  LoadMaster(owned.tile(), 0, 2, DType::kBF16, rounded);
  EXPECT_EQ(rounded[0], 0x3f81);
  EXPECT_EQ(rounded[1], 0xbf81);
}

TEST(MasterConvertTest, TilesWithoutRemainderTakeWeightsOnly) {
  const TileLayout layout = OneTensor(128);
  std::vector<bf16_t> weights(128, 0xcdcd);
  const Tile tile = MakeWeightsTile(&layout, DType::kBF16, weights.data());
  ZeroPaddingAndMoments(tile);
  const float value = 1.5f;
  EXPECT_EQ(StoreMaster(FileDType::kF32, &value, 1, tile, 3), -1);
  EXPECT_EQ(weights[3], 0x3fc0);
  float back = 0;
  LoadMaster(tile, 3, 1, DType::kF32, &back);
  EXPECT_EQ(back, 1.5f);
}

}  // namespace
}  // namespace megatrain

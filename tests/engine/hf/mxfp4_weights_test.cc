// Experts in MXFP4: from a model directory into tiles, against
// tests/golden/make_mxfp4_reference.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/safetensors.h"
#include "tests/engine/hf/expert_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGolden[] = "tests/golden/mxfp4/";

// A directory of a transposed model of two experts whose matrices are those of `packed`.
std::string WritePacked(const std::map<std::string, FileTensor>& packed) {
  const std::string directory = FreshDirectory("packed");
  std::vector<SafetensorsDeclaration> rest;
  for (SafetensorsDeclaration& tensor :
       Declared(BuildModelLayout(ExpertModel(ExpertTensors::kTransposed, 2, 2)), "BF16")) {
    if (!absl::EndsWith(tensor.name, "_proj") || !absl::StrContains(tensor.name, ".experts.")) {
      rest.push_back(std::move(tensor));
    }
  }
  const std::vector<std::string> names = {HfShardName(1, 2), HfShardName(2, 2)};
  WriteTestTensors(JoinPath(directory, names[0]), rest);
  HfWeightMap map;
  for (const SafetensorsDeclaration& tensor : rest) map[tensor.name] = names[0];
  std::vector<SafetensorsDeclaration> declared;
  for (const auto& [name, tensor] : packed) {
    declared.push_back({name, tensor.dtype, tensor.shape});
    map[name] = names[1];
  }
  auto writer =
      SafetensorsWriter::Create(PosixFileSystem(), JoinPath(directory, names[1]), declared);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const auto& [name, tensor] : packed) {
    EXPECT_TRUE(
        (*writer)->Append(tensor.bytes.data(), static_cast<int64_t>(tensor.bytes.size())).ok());
  }
  EXPECT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(
      WriteFileSynced(PosixFileSystem(), JoinPath(directory, kHfIndexFileName), MakeHfIndex(map, 0))
          .ok());
  EXPECT_TRUE(
      WriteFileSynced(PosixFileSystem(), JoinPath(directory, "config.json"),
                      R"({"model_type": "x", "quantization_config": {"quant_method": "mxfp4"}})")
          .ok());
  return directory;
}

std::map<std::string, FileTensor> Golden(const char* file) {
  return ReadTensors(absl::StrCat(kGolden, file));
}

TEST(Mxfp4WeightsTest, AreThoseThatTransformersDequantises) {
  const std::string source = WritePacked(Golden("blocks.safetensors"));
  for (const int64_t experts_per_tile : {1, 2}) {
    const ModelLayout layout =
        BuildModelLayout(ExpertModel(ExpertTensors::kTransposed, experts_per_tile, 2));
    EXPECT_EQ((*HfWeights::Open(source, layout))->ExactDType(), DType::kBF16);
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      CheckParts(source, layout, dtype);
      const std::string out = Export(source, layout, Load(source, layout, dtype), DType::kBF16);
      const std::map<std::string, FileTensor> exported = ReadTensors(out);
      for (const auto& [name, tensor] : Golden("dequantised.safetensors")) {
        EXPECT_TRUE(exported.at(name) == tensor) << name;
      }
      EXPECT_THAT(*ReadWholeFile(PosixFileSystem(), out + "/config.json", 999),
                  Not(HasSubstr("quantization_config")));
    }
  }
}

// More rows and blocks than a strip has.
TEST(Mxfp4WeightsTest, LargeMatricesAreReadInStrips) {
  ModelDescription model = ExpertModel(ExpertTensors::kTransposed, 1, 2);
  model.hidden = 32 * 130;
  model.layers.pop_back();
  const ModelLayout layout = BuildModelLayout(model);
  const std::string name = absl::StrCat(kExperts, "gate_up_proj");
  std::vector<SafetensorsDeclaration> tensors = Declared(layout, "BF16");
  std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; });
  // The shards' second file, made by hand: bytes that depend on their places.
  const std::string directory = FreshDirectory("strips");
  HfWeightMap map;
  WriteTestTensors(JoinPath(directory, HfShardName(1, 2)), tensors);
  for (const SafetensorsDeclaration& tensor : tensors) map[tensor.name] = HfShardName(1, 2);
  std::string blocks(static_cast<size_t>(2 * 64 * 130 * 16), '\0');
  std::string scales(static_cast<size_t>(2 * 64 * 130), '\0');
  uint32_t state = 1;
  for (char& byte : blocks)
    byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  for (char& byte : scales) {
    byte = static_cast<char>(120 + ((state = state * 1664525u + 1013904223u) >> 28));
  }
  auto writer = SafetensorsWriter::Create(
      PosixFileSystem(), JoinPath(directory, HfShardName(2, 2)),
      {{name + "_blocks", "U8", {2, 64, 130, 16}}, {name + "_scales", "U8", {2, 64, 130}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(blocks.data(), static_cast<int64_t>(blocks.size())).ok());
  ASSERT_TRUE((*writer)->Append(scales.data(), static_cast<int64_t>(scales.size())).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  map[name + "_blocks"] = map[name + "_scales"] = HfShardName(2, 2);
  ASSERT_TRUE(
      WriteFileSynced(PosixFileSystem(), JoinPath(directory, kHfIndexFileName), MakeHfIndex(map, 0))
          .ok());
  CheckParts(directory, layout, DType::kBF16);
  const Tiles tiles = Load(directory, layout, DType::kF32);
  constexpr float kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int t = 0; t < layout.tile_count(); ++t) {
    for (const TensorSpec& tensor : layout.tiles[t].tensors) {
      if (tensor.name != name) continue;
      const int64_t depth = model.hidden, expert = layout.tiles[t].first_expert;
      for (int64_t i = 0; i < tensor.elements; ++i) {
        const int64_t k = i / 64 % depth, row = expert * 64 + i % 64;
        const auto byte = static_cast<uint8_t>(blocks[row * depth / 2 + k / 2]);
        const int four = k % 2 == 0 ? byte & 15 : byte >> 4;
        const int scale = static_cast<uint8_t>(scales[row * 130 + k / 32]);
        const float value = std::ldexp(kMagnitudes[four & 7], scale - 127);
        ASSERT_EQ(Value(tiles[t]->tile(), tensor, i), four >= 8 ? -value : value) << i;
      }
    }
  }
}

std::string PackedError(const std::function<void(std::map<std::string, FileTensor>&)>& change,
                        const ModelLayout& layout) {
  std::map<std::string, FileTensor> packed = Golden("blocks.safetensors");
  change(packed);
  const auto weights = HfWeights::Open(WritePacked(packed), layout);
  if (!weights.ok()) return std::string(weights.status().message());
  for (int i = 0; i < layout.tile_count(); ++i) {
    OwnedTile tile(layout.tiles[i], DType::kBF16);
    const absl::Status status = (*weights)->LoadTile(i, tile.tile());
    if (!status.ok()) return std::string(status.message());
  }
  return "";
}

TEST(Mxfp4WeightsTest, WhatIsWrongIsNamed) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(ExpertTensors::kTransposed, 1, 2));
  const std::string blocks = absl::StrCat(kExperts, "gate_up_proj_blocks");
  const std::string scales = absl::StrCat(kExperts, "gate_up_proj_scales");
  EXPECT_EQ(PackedError([](auto&) {}, layout), "");
  EXPECT_THAT(PackedError([&](auto& packed) { packed.erase(scales); }, layout),
              HasSubstr("gate_up_proj_scales\" is missing"));
  EXPECT_THAT(PackedError([&](auto& packed) { packed.erase(blocks); }, layout),
              AllOf(HasSubstr("gate_up_proj\" is missing"),
                    HasSubstr("gate_up_proj_scales\" does not belong")));
  EXPECT_THAT(PackedError(
                  [&](auto& packed) {
                    packed[blocks].shape = {2, 64, 1, 32};
                  },
                  layout),
              HasSubstr("gate_up_proj_blocks\" has shape [2, 64, 1, 32] of U8, config.json says "
                        "[2, 64, 2, 16] of U8"));
  EXPECT_THAT(PackedError(
                  [&](auto& packed) {
                    packed[scales].shape = {4, 64};
                    packed[scales].dtype = "I8";
                  },
                  layout),
              HasSubstr("gate_up_proj_scales\" has shape [4, 64] of I8, config.json says"));
  EXPECT_THAT(
      PackedError([&](auto& packed) { packed[scales].bytes[64 * 2 + 5 * 2 + 1] = '\xff'; }, layout),
      HasSubstr("gate_up_proj_scales\": the scale of block 1 of row 5 of expert 1 is NaN"));
  // 6 2^127.
  EXPECT_THAT(PackedError(
                  [&](auto& packed) {
                    packed[scales].bytes[0] = '\xfe';
                    packed[blocks].bytes[0] = '\x77';
                  },
                  layout),
              HasSubstr("the scale of block 0 of row 0 of expert 0"));
  // Both forms of one tensor.
  EXPECT_THAT(PackedError(
                  [&](auto& packed) {
                    for (auto& [name, tensor] : Golden("dequantised.safetensors")) {
                      packed[name] = tensor;
                    }
                  },
                  layout),
              HasSubstr("gate_up_proj_blocks\" does not belong to this model"));
  // Experts that are not transposed are never in MXFP4.
  EXPECT_THAT(
      PackedError([](auto&) {}, BuildModelLayout(ExpertModel(ExpertTensors::kStacked, 1, 2))),
      AllOf(HasSubstr("gate_up_proj\" is missing"), HasSubstr("does not belong")));
  ModelDescription odd = ExpertModel(ExpertTensors::kTransposed, 1, 2);
  odd.layers[0].experts.intermediate = 48;
  EXPECT_THAT(PackedError([](auto&) {}, BuildModelLayout(odd)),
              AllOf(HasSubstr("down_proj_blocks\" cannot hold [2, 48, 64]"),
                    HasSubstr("32 values of an MXFP4 block")));
}

}  // namespace
}  // namespace megatrain

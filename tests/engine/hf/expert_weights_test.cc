// Experts and buffers: from a model directory into tiles, and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/random_weights.h"
#include "engine/model/parameter_count.h"
#include "tests/engine/hf/expert_fixture.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCorrection[] = "model.layers.0.mlp.gate.e_score_correction_bias";

// A directory with a config.json of another model, which neither HfWeights nor an export reads.
std::string WriteModel(const std::vector<SafetensorsDeclaration>& tensors) {
  const std::string directory = FreshDirectory("model");
  EXPECT_TRUE(WriteFileSynced(PosixFileSystem(), directory + "/config.json",
                              R"({"model_type": "x", "quantization_config": {}, "dtype": "y"})")
                  .ok());
  WriteTestTensors(directory + "/model.safetensors", tensors);
  return directory;
}

using Case = std::tuple<ExpertTensors, int64_t, DType>;
std::string CaseName(const Case& one) {
  const char* const names[] = {"Apart", "Stacked", "Transposed"};
  return absl::StrCat(names[static_cast<int>(std::get<0>(one))], std::get<1>(one),
                      DTypeName(std::get<2>(one)));
}

class ExpertWeightsTest : public ::testing::TestWithParam<Case> {
 protected:
  const ExpertTensors tensors_ = std::get<0>(GetParam());
  const int64_t experts_per_tile_ = std::get<1>(GetParam());
  const DType dtype_ = std::get<2>(GetParam());
};

TEST_P(ExpertWeightsTest, WhatIsLoadedIsExportedByteForByte) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(tensors_, experts_per_tile_));
  ASSERT_EQ(layout.tile_count(), 5 + (4 + experts_per_tile_) / experts_per_tile_);
  const std::string source = WriteModel(Declared(layout, DTypeName(dtype_)));
  const auto weights = HfWeights::Open(source, layout);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*weights)->ExactDType(), dtype_) << "whatever the buffer's";
  CheckParts(source, layout, dtype_);
  const Tiles tiles = Load(source, layout, dtype_);
  for (int t = 0; t < layout.tile_count(); ++t) {
    const Tile& tile = tiles[t]->tile();
    for (const TensorSpec& tensor : layout.tiles[t].tensors) {
      for (int64_t i = 0; i < tensor.elements; ++i) {
        ASSERT_EQ(Value(tile, tensor, i), TestValue(tensor.name, tensor.source_begin + i))
            << tensor.name << " " << i;
      }
    }
  }
  for (const int64_t shard_bytes : {kHfShardBytes, int64_t{20000}}) {
    const std::string out = Export(source, layout, tiles, dtype_, shard_bytes);
    EXPECT_EQ(ReadTensors(out), ReadTensors(source)) << shard_bytes;
  }
  const std::string config = *ReadWholeFile(
      PosixFileSystem(), Export(source, layout, tiles, dtype_) + "/config.json", 999);
  EXPECT_THAT(config, Not(HasSubstr("quantization_config")));
}

TEST_P(ExpertWeightsTest, PaddingIsZeroAndInitialWeightsDoNotDependOnTiles) {
  const ModelDescription model = ExpertModel(tensors_, experts_per_tile_);
  const ModelLayout layout = BuildModelLayout(model);
  const ModelLayout whole = BuildModelLayout(ExpertModel(tensors_, 5));
  std::map<std::string, std::vector<float>> wanted;
  ForEachTensor(whole, [&](int, const TensorSpec& tensor) {
    std::vector<float>& values = wanted[tensor.name];
    values.resize(static_cast<size_t>(tensor.elements));
    FillRandomWeights(model, 3, tensor, 0, tensor.elements, values.data(), nullptr);
  });
  for (const TileLayout& tile_layout : layout.tiles) {
    OwnedTile owned(tile_layout, dtype_);
    const Tile& tile = owned.tile();
    InitializeTile(model, 3, tile);
    ExpectPartsOfTheWhole(tile_layout, dtype_,
                          [&](const Tile& part) { InitializeTile(model, 3, part); });
    std::vector<bool> used(static_cast<size_t>(tile.weight_bytes()));
    for (const TensorSpec& tensor : tile_layout.tensors) {
      for (int64_t i = 0; i < tensor.elements; ++i) {
        ASSERT_EQ(Value(tile, tensor, i), wanted[tensor.name][tensor.source_begin + i])
            << tensor.name << " " << i;
        ASSERT_TRUE(!tensor.is_buffer || Value(tile, tensor, i) == 0.0f) << i;
      }
      const int64_t size = DTypeBytes(dtype_);
      const auto first = used.begin() + tensor.offset * size;
      std::fill(first, first + tensor.elements * (tensor.is_buffer ? 4 : size), true);
    }
    for (size_t i = 0; i < used.size(); ++i) {
      ASSERT_TRUE(used[i] || static_cast<const char*>(tile.weights)[i] == 0) << i;
    }
  }
}

TEST_P(ExpertWeightsTest, BuffersAreFp32InEveryTileAndFile) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(tensors_, experts_per_tile_));
  for (const char* const stored : {"F32", "F16", "BF16"}) {
    const std::string source = WriteModel(Declared(layout, DTypeName(dtype_), stored));
    const Tiles tiles = Load(source, layout, dtype_);
    for (int t = 0; t < layout.tile_count(); ++t) {
      for (const TensorSpec& tensor : layout.tiles[t].tensors) {
        if (!tensor.is_buffer) continue;
        EXPECT_EQ(tensor.name, kCorrection);
        EXPECT_EQ(Value(tiles[t]->tile(), tensor, 4), TestValue(kCorrection, 4));
        // A value that neither BF16 nor F16 has.
        char* const at =
            static_cast<char*>(tiles[t]->tile().weights) + tensor.offset * DTypeBytes(dtype_);
        reinterpret_cast<float*>(at)[4] = 0.1f;
      }
    }
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const FileTensor buffer = ReadTensors(Export(source, layout, tiles, dtype)).at(kCorrection);
      EXPECT_EQ(buffer.dtype, "F32");
      EXPECT_EQ(buffer.bytes.substr(16), std::string("\xcd\xcc\xcc\x3d"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ExpertWeightsTest,
                         ::testing::Combine(::testing::Values(ExpertTensors::kApart,
                                                              ExpertTensors::kStacked,
                                                              ExpertTensors::kTransposed),
                                            ::testing::Values(1, 2, 5),
                                            ::testing::Values(DType::kBF16, DType::kF32)),
                         [](const auto& info) { return CaseName(info.param); });

TEST(ExpertParametersTest, BuffersAreNone) {
  ModelDescription model = ExpertModel(ExpertTensors::kStacked, 2);
  const int64_t with = ParameterCount(model);
  model.layers[0].experts.router.correction = false;
  EXPECT_EQ(ParameterCount(model), with);
  EXPECT_EQ(BuildModelLayout(model).trained_parameters, with);
}

std::string OpenError(const std::vector<SafetensorsDeclaration>& tensors,
                      const ModelLayout& layout) {
  const auto weights = HfWeights::Open(WriteModel(tensors), layout);
  EXPECT_FALSE(weights.ok());
  return std::string(weights.status().message());
}

TEST(ExpertFilesTest, AWrongTensorIsNamedOnceWhateverTheTiles) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(ExpertTensors::kStacked, 2));
  std::vector<SafetensorsDeclaration> tensors = Declared(layout, "BF16");
  const std::string name = absl::StrCat(kExperts, "down_proj");
  for (SafetensorsDeclaration& tensor : tensors) {
    if (tensor.name == name) tensor.shape[0] = 4;
  }
  const std::string message = OpenError(tensors, layout);
  EXPECT_THAT(message,
              HasSubstr("down_proj\" has shape [4, 64, 32], config.json says [5, 64, 32]"));
  EXPECT_EQ(message.find(name), message.rfind(name));
}

TEST(ExpertFilesTest, LayersThatPredictLaterTokensArePassedOver) {
  ModelDescription model = ExpertModel(ExpertTensors::kApart, 2);
  std::vector<SafetensorsDeclaration> tensors = Declared(BuildModelLayout(model), "BF16");
  tensors.push_back({"model.layers.2.mlp.gate.weight", "BF16", {3}});
  model.family = "glm4_moe";
  EXPECT_THAT(OpenError(tensors, BuildModelLayout(model)),
              HasSubstr("\"model.layers.2.mlp.gate.weight\" does not"));
  tensors.push_back({"model.layers.2.eh_proj.weight", "BF16", {3}});
  EXPECT_TRUE(HfWeights::Open(WriteModel(tensors), BuildModelLayout(model)).ok());
  // Other families do not declare that they have such layers.
  model.family = "mixtral";
  EXPECT_THAT(OpenError(tensors, BuildModelLayout(model)),
              HasSubstr("\"model.layers.2.eh_proj.weight\" does not"));
}

TEST(ExpertFilesTest, PartsOfATensorMustFollowOneAnother) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(ExpertTensors::kStacked, 2));
  const std::string name = absl::StrCat(kExperts, "down_proj");
  const auto with = [&](const std::vector<SafetensorsDeclaration>& parts) {
    std::vector<SafetensorsDeclaration> tensors = Declared(layout, "BF16");
    std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; });
    tensors.insert(tensors.end(), parts.begin(), parts.end());
    return tensors;
  };
  const auto part = [&](int64_t begin, int64_t end, std::vector<int64_t> shape) {
    return SafetensorsDeclaration{HfPartName(name, begin, end), "F32", std::move(shape)};
  };
  // Cut in another way than the tiles.
  const std::string good = WriteModel(with({part(0, 1, {1, 64, 32}), part(1, 5, {4, 64, 32})}));
  const Tiles tiles = Load(good, layout, DType::kF32);
  for (int t = 0; t < layout.tile_count(); ++t) {
    for (const TensorSpec& tensor : layout.tiles[t].tensors) {
      if (tensor.name != name) continue;
      for (int64_t i = 0; i < tensor.elements; ++i) {
        const int64_t at = tensor.source_begin + i, first = int64_t{64} * 32;
        ASSERT_EQ(Value(tiles[t]->tile(), tensor, i),
                  at < first ? TestValue(HfPartName(name, 0, 1), at)
                             : TestValue(HfPartName(name, 1, 5), at - first));
      }
    }
  }
  for (const auto& [parts, message] :
       std::vector<std::pair<std::vector<SafetensorsDeclaration>, std::string>>{
           {{part(1, 5, {4, 64, 32})}, "does not go on"},
           {{part(0, 2, {2, 64, 32}), part(3, 5, {2, 64, 32})}, "does not go on"},
           {{part(0, 2, {2, 64, 32}), part(1, 5, {4, 64, 32})}, "does not go on"},
           {{part(0, 2, {2, 64, 32}), part(2, 5, {3, 32, 64})}, "does not go on"},
           {{part(0, 2, {3, 64, 32}), part(2, 5, {3, 64, 32})}, "does not go on"},
           {{part(0, 2, {2, 64, 32}), part(2, 5, {})}, "does not go on"},
           {{part(0, 0, {0, 64, 32}), part(0, 5, {5, 64, 32})}, "does not"},
           {{part(0, 4, {4, 64, 32})}, "has shape [4, 64, 32]"}}) {
    EXPECT_THAT(OpenError(with(parts), layout), HasSubstr(message));
  }
}

}  // namespace
}  // namespace megatrain

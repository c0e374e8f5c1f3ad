// Directories of families with experts, read by their config.json: those that transformers saved,
// and the same models with stacked experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_export.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/safetensors.h"
#include "tests/engine/hf/model_fixture.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

struct Model {
  std::string directory;
  ModelLayout layout;
  std::vector<std::unique_ptr<OwnedTile>> tiles;
};

// Two experts a tile, so that stacked tensors lie in several.
Model LoadModel(const std::string& directory) {
  Model model;
  model.directory = directory;
  auto description = ReadModelDescription(directory);
  EXPECT_TRUE(description.ok()) << description.status();
  if (!description.ok()) return model;
  for (LayerDescription& layer : description->layers) {
    if (layer.experts.count > 0) layer.experts.experts_per_tile = 2;
  }
  model.layout = BuildModelLayout(*description);
  const auto weights = HfWeights::Open(directory, model.layout);
  EXPECT_TRUE(weights.ok()) << weights.status();
  if (!weights.ok()) return model;
  EXPECT_EQ((*weights)->ExactDType(), DType::kBF16);
  for (int i = 0; i < model.layout.tile_count(); ++i) {
    model.tiles.push_back(std::make_unique<OwnedTile>(model.layout.tiles[i], DType::kBF16));
    const absl::Status loaded = (*weights)->LoadTile(i, model.tiles.back()->tile());
    EXPECT_TRUE(loaded.ok()) << loaded;
  }
  return model;
}

// Writes the model's tiles with the names of `layout`.
std::string Export(const Model& model, const ModelLayout& layout, const std::string& name) {
  const std::string out = FreshDirectory(name) + "/export";
  const absl::Status status = ExportHfDirectory(
      model.directory, layout, DType::kBF16,
      [&](int i) -> absl::StatusOr<Tile> { return model.tiles[i]->tile(); }, out);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

std::map<std::string, std::pair<std::vector<int64_t>, std::string>> ReadTensors(
    const std::string& directory) {
  std::map<std::string, std::pair<std::vector<int64_t>, std::string>> tensors;
  const auto reader =
      SafetensorsReader::Open(PosixFileSystem(), JoinPath(directory, kHfWeightsFileName));
  EXPECT_TRUE(reader.ok()) << reader.status();
  for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
    std::string bytes(static_cast<size_t>(tensor.bytes()), '\0');
    EXPECT_TRUE((*reader)->Read(tensor, 0, bytes.data(), tensor.bytes()).ok());
    tensors[tensor.name] = {tensor.shape, tensor.dtype + bytes};
  }
  return tensors;
}

class ExpertDirectoriesTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string directory_ = absl::StrCat("tests/golden/models/", GetParam());
};

TEST_P(ExpertDirectoriesTest, AreSavedAsTheyWereRead) {
  const Model model = LoadModel(directory_);
  EXPECT_TRUE(ReadTensors(Export(model, model.layout, "same")) == ReadTensors(directory_));
}

TEST_P(ExpertDirectoriesTest, HaveTheSameWeightsStacked) {
  const Model apart = LoadModel(directory_);
  ModelDescription description = apart.layout.model;
  for (LayerDescription& layer : description.layers) {
    if (layer.experts.count == 0 || layer.experts.transposed()) continue;
    layer.experts.tensors = ExpertTensors::kStacked;
    layer.experts.name = "mlp.experts";
    layer.experts.router.name = "mlp.gate";
  }
  // A tile of stacked experts has the same bytes.
  const std::string out = Export(apart, BuildModelLayout(description), "stacked");
  const Model stacked = LoadModel(out);
  EXPECT_TRUE(stacked.layout.model.layers == description.layers);
  ASSERT_EQ(stacked.tiles.size(), apart.tiles.size());
  for (size_t i = 0; i < apart.tiles.size(); ++i) {
    const Tile& a = apart.tiles[i]->tile();
    const Tile& b = stacked.tiles[i]->tile();
    EXPECT_EQ(std::memcmp(a.weights, b.weights, static_cast<size_t>(a.weight_bytes())), 0) << i;
  }
  EXPECT_TRUE(ReadTensors(Export(stacked, stacked.layout, "again")) == ReadTensors(out));
  // A directory whose weights are gone has the names of one that has them.
  const std::string gone = FreshDirectory("gone"), config = gone + "/config.json";
  ASSERT_TRUE(WriteFileSynced(PosixFileSystem(), config,
                              *ReadWholeFile(PosixFileSystem(), directory_ + "/config.json", 9999))
                  .ok());
  auto named = ReadModelDescription(gone, PosixFileSystem(), {FreshDirectory("nothing"), out});
  ASSERT_TRUE(named.ok()) << named.status();
  for (LayerDescription& layer : named->layers) {
    if (layer.experts.count > 0) layer.experts.experts_per_tile = 2;
  }
  EXPECT_TRUE(named->layers == description.layers);
}

// Tables of layers that are columns of one tensor.
TEST(ColumnDirectoriesTest, AreSavedAsTheyWereRead) {
  const std::string directory = "tests/golden/models/gemma4_shared";
  const Model model = LoadModel(directory);
  EXPECT_TRUE(ReadTensors(Export(model, model.layout, "columns")) == ReadTensors(directory));
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertDirectoriesTest,
                         ::testing::Values("mixtral", "qwen3_moe", "qwen3_moe_plain", "glm4_moe",
                                           "deepseek_v3", "gpt_oss", "qwen3_next", "qwen3_5_moe",
                                           "gemma4_moe"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ExpertConfigTest, Mxfp4IsOfTransposedExpertsAlone) {
  const auto parse = [](const std::string& family, const std::string& method) {
    auto config = nlohmann::json::parse(*ReadWholeFile(
        PosixFileSystem(), absl::StrCat("tests/golden/models/", family, "/config.json"), 1 << 20));
    config["quantization_config"] = {{"quant_method", method},
                                     {"modules_to_not_convert", {"model.embed_tokens"}}};
    return std::string(ParseModelDescription(config.dump(), "x").status().message());
  };
  EXPECT_EQ(parse("gpt_oss", "mxfp4"), "");
  auto config = nlohmann::json::parse(
      *ReadWholeFile(PosixFileSystem(), "tests/golden/models/gpt_oss/config.json", 1 << 20));
  config["quantization_config"] = {{"quant_method", "mxfp4"}, {"mystery", 4}};
  EXPECT_THAT(std::string(ParseModelDescription(config.dump(), "x").status().message()),
              HasSubstr("unknown key quantization_config.mystery"));
  EXPECT_THAT(parse("gpt_oss", "awq"), HasSubstr("quantization_config.quant_method: \"awq\""));
  EXPECT_THAT(parse("mixtral", "mxfp4"), HasSubstr("quantization_config.quant_method: \"mxfp4\""));
  // As DeepSeek-V3 was published.
  EXPECT_THAT(
      parse("deepseek_v3", "fp8"),
      HasSubstr("quantization_config.quant_method: \"fp8\" weights of this family cannot be "
                "trained; give a directory of its BF16 or FP32 weights"));
}

}  // namespace
}  // namespace megatrain

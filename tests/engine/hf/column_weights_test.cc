// A matrix whose columns lie in several tiles, read from a directory where they lie in parts that
// are cut in another way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "tests/engine/hf/expert_fixture.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr char kTable[] = "model.embed_tokens_per_layer.weight";
constexpr int64_t kRows = 13, kWidth = 6, kLayers = 4, kColumns = kLayers * kWidth;

ModelLayout Layout() {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 8,
                                         .layers = kLayers,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .head_dim = 4,
                                         .intermediate = 6,
                                         .max_positions = 32});
  for (LayerDescription& layer : model.layers) layer.per_layer_input = {kWidth, kRows};
  return BuildModelLayout(model);
}

// A directory whose table lies in `parts`.
std::string WriteModel(const ModelLayout& layout,
                       const std::vector<SafetensorsDeclaration>& parts) {
  std::vector<SafetensorsDeclaration> tensors = Declared(layout, "F32");
  EXPECT_EQ(std::erase_if(tensors, [](const auto& tensor) { return tensor.name == kTable; }), 1u);
  tensors.insert(tensors.end(), parts.begin(), parts.end());
  const std::string directory = FreshDirectory("model");
  WriteTestTensors(directory + "/model.safetensors", tensors);
  return directory;
}

SafetensorsDeclaration Part(int64_t begin, int64_t end, std::vector<int64_t> shape) {
  return {HfColumnsName(kTable, begin, end), "F32", std::move(shape)};
}

TEST(ColumnWeightsTest, PartsMayBeCutInAnotherWayThanTheTiles) {
  const ModelLayout layout = Layout();
  // Within a layer's columns, at their end, and over two layers.
  const std::vector<int64_t> cuts = {0, 5, 6, 16, kColumns};
  std::vector<SafetensorsDeclaration> parts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    parts.push_back(Part(cuts[i], cuts[i + 1], {kRows, cuts[i + 1] - cuts[i]}));
  }
  const std::string directory = WriteModel(layout, parts);
  const auto wanted = [&](int64_t element) {
    const int64_t row = element / kColumns, column = element % kColumns;
    size_t part = 0;
    while (cuts[part + 1] <= column) ++part;
    return TestValue(parts[part].name, row * (cuts[part + 1] - cuts[part]) + column - cuts[part]);
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CheckParts(directory, layout, dtype);
    const Tiles tiles = Load(directory, layout, dtype);
    int64_t elements = 0;
    for (int t = 0; t < layout.tile_count(); ++t) {
      for (const TensorSpec& tensor : layout.tiles[t].tensors) {
        if (tensor.name != kTable) continue;
        for (const TensorRun& run : RunsOf(tensor)) {
          for (int64_t i = 0; i < run.elements; ++i) {
            ASSERT_EQ(Value(tiles[t]->tile(), tensor, run.place + i), wanted(run.source + i))
                << "tile " << t << ", element " << run.source + i;
          }
          elements += run.elements;
        }
      }
    }
    EXPECT_EQ(elements, kRows * kColumns);
  }
}

TEST(ColumnWeightsTest, PartsMustFollowOneAnother) {
  const ModelLayout layout = Layout();
  for (const auto& [parts, message] :
       std::vector<std::pair<std::vector<SafetensorsDeclaration>, std::string>>{
           {{}, "is missing"},
           {{Part(1, 24, {kRows, 23})}, "does not go on"},
           {{Part(0, 5, {kRows, 5}), Part(6, 24, {kRows, 18})}, "does not go on"},
           {{Part(0, 5, {kRows, 5}), Part(4, 24, {kRows, 20})}, "does not go on"},
           {{Part(0, 5, {kRows, 5}), Part(5, 24, {kRows + 1, 19})}, "does not go on"},
           {{Part(0, 5, {kRows, 6}), Part(6, 24, {kRows, 18})}, "does not go on"},
           {{Part(0, 5, {kRows, 5}), Part(5, 24, {19})}, "does not go on"},
           {{Part(0, 5, {kRows, 5}), Part(5, 5, {kRows, 0})}, "does not go on"},
           {{Part(0, 24, {kRows, 24, 1})}, "is no matrix"},
           {{Part(0, 16, {kRows, 16})}, "has shape [13, 16], config.json says [13, 24]"},
           {{Part(0, 24, {kRows - 1, 24})}, "has shape [12, 24], config.json says [13, 24]"}}) {
    const auto weights = HfWeights::Open(WriteModel(layout, parts), layout);
    ASSERT_FALSE(weights.ok()) << message;
    EXPECT_THAT(std::string(weights.status().message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace megatrain

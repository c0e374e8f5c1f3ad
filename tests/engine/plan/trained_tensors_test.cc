#include "engine/plan/trained_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelDescription Config(bool tied) {
  UniformShape config;
  config.vocabulary = 100;
  config.hidden = 16;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.intermediate = 24;
  ModelDescription model = UniformModel(config);
  model.family = "qwen2";
  for (LayerDescription& layer : model.layers) layer.attention.qkv_bias = true;
  model.tied_embeddings = tied;
  return model;
}

JobSpec Freezing(const std::vector<std::string>& patterns) {
  JobSpec spec;
  spec.training.freeze = patterns;
  return spec;
}

const TensorSpec& Find(const ModelLayout& layout, const std::string& name) {
  for (const TileLayout& tile : layout.tiles) {
    for (const TensorSpec& tensor : tile.tensors) {
      if (tensor.name == name) return tensor;
    }
  }
  ADD_FAILURE() << name;
  return layout.tiles[0].tensors[0];
}

TEST(TrainingLayoutTest, WithoutPatternsItIsThePlainLayout) {
  const ModelLayout plain = BuildModelLayout(Config(false));
  const auto layout = BuildTrainingLayout(Config(false), JobSpec());
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->trained_parameters, plain.parameters);
  ASSERT_EQ(layout->tile_count(), plain.tile_count());
  for (int i = 0; i < plain.tile_count(); ++i) {
    EXPECT_EQ(layout->tiles[i].state_elements(), plain.tiles[i].elements);
  }
}

TEST(TrainingLayoutTest, FrozenGroupsLieBehindTheStateAndPartsOfAGroupWithinIt) {
  const auto layout = BuildTrainingLayout(
      Config(false), Freezing({"model.layers.0.*", "*.mlp.down_proj.*", "*.bias", "*.k_proj.*"}));
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->tiles[0].stateless_elements, 0);
  EXPECT_EQ(layout->tiles[1].state_elements(), 0) << "layer 0";
  const TileLayout& tile = layout->tiles[2];
  EXPECT_TRUE(Find(*layout, "model.layers.1.mlp.down_proj.weight").frozen);
  EXPECT_GE(tile.offsets.down, tile.state_elements());
  EXPECT_GE(tile.offsets.in_projection_bias, tile.state_elements());
  // Queries, keys and values are one product's.
  const TensorSpec& key = Find(*layout, "model.layers.1.self_attn.k_proj.weight");
  EXPECT_TRUE(key.frozen);
  EXPECT_LT(key.offset, tile.state_elements());
  EXPECT_EQ(key.offset, tile.offsets.in_projection + 16 * 16);
  const int64_t end = tile.offsets.in_projection + 32 * 16;
  const auto trained = TrainedRanges(tile, {tile.offsets.in_projection, end});
  ASSERT_EQ(trained.size(), 2u);
  EXPECT_EQ(trained[0], (ElementRange{tile.offsets.in_projection, key.offset}));
  EXPECT_EQ(trained[1], (ElementRange{key.offset + 8 * 16, end}));
  int64_t tensors_end = 0, frozen = 0;
  for (const TensorSpec& tensor : tile.tensors) {
    EXPECT_GE(tensor.offset, tensors_end) << "ordered by offset";
    tensors_end = tensor.offset + tensor.elements;
  }
  ForEachTensor(*layout, [&](int, const TensorSpec& t) { frozen += t.frozen ? t.elements : 0; });
  EXPECT_EQ(layout->trained_parameters, layout->parameters - frozen);
}

TEST(TrainingLayoutTest, ATiedMatrixHasBothNames) {
  for (const char* name : {"lm_head.weight", "model.embed_tokens.weight", "lm_head.*"}) {
    const auto layout = BuildTrainingLayout(Config(true), Freezing({name}));
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_TRUE(Find(*layout, "model.embed_tokens.weight").frozen) << name;
    EXPECT_FALSE(Find(*layout, "model.norm.weight").frozen);
    EXPECT_EQ(layout->tiles[0].state_elements(), kTensorAlignmentElements) << "the norm";
  }
  const auto untied = BuildTrainingLayout(Config(false), Freezing({"lm_head.weight"}));
  ASSERT_TRUE(untied.ok()) << untied.status();
  EXPECT_FALSE(Find(*untied, "model.embed_tokens.weight").frozen);
}

TEST(TrainingLayoutTest, TheFirstGroupThatMatchesCounts) {
  JobSpec spec;
  spec.optimizer.groups = {{"model.layers.0.*", 1e-5, {}}, {"*.mlp.*", {}, 0.0}};
  const auto layout = BuildTrainingLayout(Config(false), spec);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(Find(*layout, "model.layers.0.mlp.up_proj.weight").rate_group, 1);
  EXPECT_EQ(Find(*layout, "model.layers.1.mlp.up_proj.weight").rate_group, 2);
  EXPECT_EQ(Find(*layout, "model.layers.1.self_attn.o_proj.weight").rate_group, 0);

  const auto refusal = [&](const std::string& match) {
    spec.optimizer.groups[1].match = match;
    return std::string(BuildTrainingLayout(Config(false), spec).status().message());
  };
  EXPECT_THAT(refusal("*.mpl.*"),
              AllOf(HasSubstr("optimizer.groups[1].match: \"*.mpl.*\" matches no tensor"),
                    HasSubstr("model.layers.0.mlp.gate_proj.weight")));
  EXPECT_THAT(refusal("model.layers.0.mlp.*"), HasSubstr("belongs to an earlier group"));
}

TEST(TrainingLayoutTest, AGroupWhoseTensorsAreAllFrozenIsRefused) {
  JobSpec spec = Freezing({"model.layers.0.*"});
  spec.optimizer.groups = {{"*.o_proj.*", {}, 0.0}, {"model.layers.0.mlp.*", 1e-5, {}}};
  const absl::Status frozen = BuildTrainingLayout(Config(false), spec).status();
  EXPECT_EQ(frozen.code(), absl::StatusCode::kInvalidArgument) << frozen;
  EXPECT_THAT(std::string(frozen.message()),
              HasSubstr("optimizer.groups[1].match: training.freeze freezes every tensor that "
                        "\"model.layers.0.mlp.*\" gives a rate"));
  // One that is trained suffices, as the first group has.
  spec.optimizer.groups[1].match = "*.mlp.*";
  const auto layout = BuildTrainingLayout(Config(false), spec);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(Find(*layout, "model.layers.1.mlp.up_proj.weight").rate_group, 2);
}

TEST(TrainingLayoutTest, RefusesWhatWouldDoNothing) {
  const absl::Status nothing =
      BuildTrainingLayout(Config(false), Freezing({"*.bias", "model.embed_token.*"})).status();
  EXPECT_EQ(nothing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(nothing.message()),
              AllOf(HasSubstr("training.freeze[1]: \"model.embed_token.*\" matches no tensor"),
                    HasSubstr("model.embed_tokens.weight")));
  const absl::Status all = BuildTrainingLayout(Config(true), Freezing({"model.*"})).status();
  EXPECT_EQ(all.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(all.message()), HasSubstr("every tensor of the model is frozen"));
}

// Experts stacked in two tiles, and a router with a buffer.
ModelDescription Sparse() {
  ModelDescription model = Config(false);
  for (LayerDescription& layer : model.layers) {
    layer.feed_forward.intermediate = 0;
    layer.experts.count = 4;
    layer.experts.chosen = 2;
    layer.experts.intermediate = 8;
    layer.experts.experts_per_tile = 2;
    layer.experts.tensors = ExpertTensors::kStacked;
    layer.experts.router.correction = true;
  }
  return model;
}

TEST(TrainingLayoutTest, APatternFreezesAllPartsOfStackedExperts) {
  const auto layout = BuildTrainingLayout(Sparse(), Freezing({"*.experts.down_proj"}));
  ASSERT_TRUE(layout.ok()) << layout.status();
  int parts = 0;
  ForEachTensor(*layout, [&](int, const TensorSpec& tensor) {
    const bool down = tensor.name.ends_with(".down_proj");
    EXPECT_EQ(tensor.frozen, down || tensor.is_buffer) << tensor.name;
    parts += down ? 1 : 0;
  });
  EXPECT_EQ(parts, 6);
  EXPECT_EQ(layout->trained_parameters,
            BuildModelLayout(Sparse()).parameters - 3 * int64_t{4} * 16 * 8);
}

TEST(TrainingLayoutTest, PatternsDoNotMatchBuffersAndNearNamesAreNamedOnce) {
  const auto buffer = BuildTrainingLayout(Sparse(), Freezing({"*.e_score_correction_bias"}));
  EXPECT_THAT(std::string(buffer.status().message()),
              HasSubstr("matches only tensors that no job trains"));
  const auto typo = BuildTrainingLayout(Sparse(), Freezing({"*.0.mlp.experts.down_porj"}));
  const std::string message(typo.status().message());
  const std::string near = "layers.0.mlp.experts.down_proj";
  EXPECT_THAT(message, HasSubstr(near));
  EXPECT_EQ(message.find(near), message.rfind(near));
}

}  // namespace
}  // namespace megatrain

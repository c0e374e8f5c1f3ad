#include "engine/model/model_description.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace megatrain {
namespace {

ModelDescription Model() {
  return UniformModel({.vocabulary = 11,
                       .hidden = 20,
                       .layers = 5,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_dim = 6,
                       .intermediate = 14,
                       .max_positions = 32});
}

void MakeDeltaNet(LayerDescription& layer) {
  layer.attention = AttentionDescription();
  layer.delta_net = {.key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .kernel = 4};
}

// What attention needs is reckoned for these layers only.
TEST(ModelDescriptionTest, LayersOfDifferentAttentionAreTheFirstOfTheirKinds) {
  ModelDescription model = Model();
  EXPECT_EQ(LayersOfDifferentAttention(model), (std::vector<int>{0}));
  model.layers[3].feed_forward.intermediate = 7;  // another layer, but the same attention
  EXPECT_EQ(LayersOfDifferentAttention(model), (std::vector<int>{0}));
  model.layers[1].attention.window = model.layers[3].attention.window = 8;
  MakeDeltaNet(model.layers[2]);
  MakeDeltaNet(model.layers[4]);
  EXPECT_EQ(LayersOfDifferentAttention(model), (std::vector<int>{0, 1, 2}));
  model.layers[4].delta_net.value_dim = 7;
  EXPECT_EQ(LayersOfDifferentAttention(model), (std::vector<int>{0, 1, 2, 4}));
}

TEST(ModelDescriptionTest, TheFirstAttentionIsSoftmaxAttentionIfThereIsAny) {
  ModelDescription model = Model();
  EXPECT_EQ(&FirstAttention(model), &model.layers[0].attention);
  MakeDeltaNet(model.layers[0]);
  model.layers[1].attention.latent.key_value_rank = 8;
  EXPECT_EQ(&FirstAttention(model), &model.layers[2].attention);
  model.layers.resize(2);
  EXPECT_EQ(&FirstAttention(model), &model.layers[0].attention);
}

TEST(ModelDescriptionTest, SetsOfKeysHaveAMakerAndALastUser) {
  ModelDescription model = Model();
  model.layers[1].attention.key_set = model.layers[3].attention.key_set = 0;
  model.layers[2].attention.key_set = 1;
  EXPECT_EQ(MakerOfKeys(model, 0), 1);
  EXPECT_EQ(LastUserOfKeys(model, 0), 3);
  EXPECT_EQ(MakerOfKeys(model, 1), 2);
  EXPECT_EQ(LastUserOfKeys(model, 1), 2) << "its maker uses it too";
}

TEST(ModelDescriptionTest, TheMostExpertsOfALayer) {
  ModelDescription model = Model();
  EXPECT_EQ(MostExperts(model), 0);
  model.layers[1].experts.count = 8;
  model.layers[2].experts.count = 4;
  EXPECT_EQ(MostExperts(model), 8);
}

// The memory of the backward pass is cut by these.
TEST(ModelDescriptionTest, WidthsOfALayer) {
  LayerDescription layer = Model().layers[0];
  AttentionDescription& a = layer.attention;
  EXPECT_DOUBLE_EQ(a.score_scale, 1 / std::sqrt(6.0));
  EXPECT_EQ(layer.projected_width(), 24 + 2 * 12);
  EXPECT_EQ(layer.projected_gradient_width(), 24 + 2 * 12);
  EXPECT_EQ(layer.expanded_gradient_width(), 0);
  EXPECT_EQ(layer.mixed_width(), 24);
  EXPECT_FALSE(layer.gates_result());
  a.output_gate = true;
  EXPECT_EQ(layer.projected_width(), 24 + 24 + 2 * 12);
  EXPECT_EQ(layer.projected_gradient_width(), 24 + 24 + 2 * 12);
  EXPECT_TRUE(layer.gates_result());
  a.output_gate = false;
  a.value_norm = a.values_are_keys = true;
  EXPECT_EQ(layer.projected_width(), 24 + 12);
  EXPECT_EQ(layer.projected_gradient_width(), 24 + 2 * 12) << "keys and values apart";
  EXPECT_EQ(a.rotated_width(), 24 + 2 * 12);
  a.projects_keys = false;
  EXPECT_EQ(layer.projected_width(), 24);
  EXPECT_EQ(layer.projected_gradient_width(), 24 + 2 * 12) << "the shared ones'";
  EXPECT_EQ(a.rotated_width(), 24);

  layer = Model().layers[0];
  a.kv_heads = 4;
  a.latent = {.key_value_rank = 8, .query_rank = 9, .rotary_dim = 2, .value_dim = 5};
  EXPECT_EQ(layer.projected_width(), 9 + 8 + 2);
  EXPECT_EQ(layer.projected_gradient_width(), 9 + 8 + 2);
  EXPECT_EQ(layer.expanded_gradient_width(), 24 + 4 * (6 + 5));
  EXPECT_EQ(a.expanded_width(), 4 * (6 - 2 + 5)) << "the rotated ends of keys are not expanded";
  EXPECT_EQ(layer.mixed_width(), 4 * 5);
  a.latent.query_rank = 0;
  EXPECT_EQ(layer.projected_width(), 24 + 8 + 2);

  MakeDeltaNet(layer);
  EXPECT_EQ(layer.delta_net.channels(), 2 * 6 + 20);
  EXPECT_EQ(layer.projected_width(), 2 * 6 + 20 + 20 + 2 * 4);
  EXPECT_EQ(layer.projected_gradient_width(), layer.projected_width());
  EXPECT_EQ(layer.mixed_width(), 20);
  EXPECT_TRUE(layer.gates_result());
}

}  // namespace
}  // namespace megatrain

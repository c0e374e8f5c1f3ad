#include "engine/model/model_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace megatrain {
namespace {

// Three layers: a dense one, one with experts, and one where they are joined with a dense unit.
enum { kDense, kSparse, kJoined };
ModelDescription Model() {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 20,
                                         .layers = 3,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 6,
                                         .intermediate = 14,
                                         .max_positions = 32});
  ExpertsDescription experts;
  experts.count = 6;
  experts.chosen = 2;
  experts.intermediate = 10;
  experts.experts_per_tile = 4;
  for (const int layer : {kSparse, kJoined}) model.layers[layer].experts = experts;
  model.layers[kSparse].feed_forward.intermediate = 0;
  model.layers[kJoined].feed_forward_norms = {"a", "b"};
  model.layers[kJoined].join = {{"c", "d"}, "e"};
  return model;
}

struct Case {
  int layer;
  const char* what;
  std::function<void(LayerDescription&)> change;
};

// Gives the layer latent attention.
AttentionDescription& Latents(LayerDescription& layer) {
  layer.attention.latent = {.key_value_rank = 8, .rotary_dim = 6, .value_dim = 6};
  layer.attention.kv_heads = layer.attention.heads;
  return layer.attention;
}

const Case kCases[] = {
    {kSparse, "output_scale", [](LayerDescription& l) { l.output_scale = true; }},
    {kJoined, "shared expert", [](LayerDescription& l) { l.experts.shared_intermediate = 8; }},
    {kDense, "differs from that of layer 0",
     [](LayerDescription& l) { l.per_layer_input = {.width = 4, .vocabulary = 11}; }},
    {kSparse, "residual_scale", [](LayerDescription& l) { l.residual_scale = 0.5; }},
    {kJoined, "residual_scale", [](LayerDescription& l) { l.residual_scale = 0.5; }},
    {kDense, "beside an output_bias",
     [](LayerDescription& l) {
       l.residual_scale = 0.5;
       l.attention.output_bias = true;
     }},
    {kSparse, "post_norm", [](LayerDescription& l) { l.feed_forward_norms.post_norm = "b"; }},
    {kSparse, "without a norm", [](LayerDescription& l) { l.feed_forward_norms.norm = ""; }},
    {kJoined, "all of its norms", [](LayerDescription& l) { l.join.experts.post_norm = ""; }},
    {kJoined, "all of its norms", [](LayerDescription& l) { l.join.dense_post_norm = ""; }},
    {kJoined, "all of its norms", [](LayerDescription& l) { l.join.experts.norm = ""; }},
    {kJoined, "all of its norms", [](LayerDescription& l) { l.feed_forward_norms.norm = ""; }},
    {kJoined, "all of its norms", [](LayerDescription& l) { l.feed_forward_norms.post_norm = ""; }},
    {kSparse, "shared_gate", [](LayerDescription& l) { l.experts.shared_gate = true; }},
    {kSparse, "chosen", [](LayerDescription& l) { l.experts.chosen = 7; }},
    {kSparse, "groups", [](LayerDescription& l) { l.experts.router.groups = 4; }},
    {kSparse, "chosen groups", [](LayerDescription& l) { l.experts.router.chosen_groups = 2; }},
    {kSparse, "fewer experts",
     [](LayerDescription& l) {
       l.experts.chosen = 3;
       l.experts.router.groups = 3;
     }},
    {kSparse, "experts_per_tile", [](LayerDescription& l) { l.experts.experts_per_tile = 0; }},
    {kDense, "clamped",
     [](LayerDescription& l) { l.feed_forward.activation = GluActivation::kClampedSilu; }},
    {kDense, "neither", [](LayerDescription& l) { l.feed_forward.intermediate = 0; }},
    {kDense, "post_norms",
     [](LayerDescription& l) {
       l.residual_scale = 0.5;
       l.attention_norms.post_norm = "b";
     }},
    {kDense, "post_norms",
     [](LayerDescription& l) {
       l.residual_scale = 0.5;
       l.feed_forward_norms.post_norm = "b";
     }},
    {kDense, "kv_heads", [](LayerDescription& l) { l.attention.kv_heads = 3; }},
    {kDense, "value_norm", [](LayerDescription& l) { l.attention.value_norm = true; }},
    {kDense, "values_are_keys", [](LayerDescription& l) { l.attention.values_are_keys = true; }},
    {kDense, "fused_qkv",
     [](LayerDescription& l) { l.attention.fused_qkv = l.attention.output_gate = true; }},
    {kDense, "fused_qkv",
     [](LayerDescription& l) {
       l.attention.fused_qkv = true;
       l.attention.projects_keys = false;
     }},
    {kDense, "fused_qkv",
     [](LayerDescription& l) {
       l.attention.qk_norm = QkNorm::kHead;
       l.attention.fused_qkv = l.attention.value_norm = l.attention.values_are_keys = true;
     }},
    {kDense, "keys of its own", [](LayerDescription& l) { l.attention.projects_keys = false; }},
    {kDense, "no layer before it makes",
     [](LayerDescription& l) {
       l.attention.projects_keys = false;
       l.attention.key_set = 0;
     }},
    {kDense, "rope 1", [](LayerDescription& l) { l.attention.query_rope = 1; }},
    {kDense, "rope 1", [](LayerDescription& l) { l.attention.key_rope = 1; }},
    {kDense, "rope 0", [](LayerDescription& l) { l.attention.head_dim = 4; }},
    {kDense, "rope 0 of 6 elements of a head's 4",
     [](LayerDescription& l) { Latents(l).latent.rotary_dim = 4; }},
    {kDense, "delta net", [](LayerDescription& l) { l.delta_net.key_heads = 2; }},
    {kDense, "latents",
     [](LayerDescription& l) {
       l.attention.latent = {.key_value_rank = 8, .rotary_dim = 6, .value_dim = 6};
     }},
    {kDense, "latents and sinks", [](LayerDescription& l) { Latents(l).sinks = true; }},
    {kDense, "latents and norms", [](LayerDescription& l) { Latents(l).qk_norm = QkNorm::kHead; }},
    {kDense, "latents and a value_norm", [](LayerDescription& l) { Latents(l).value_norm = true; }},
    {kDense, "latents and a value_norm",
     [](LayerDescription& l) { Latents(l).values_are_keys = true; }},
    {kDense, "latents and an output_gate",
     [](LayerDescription& l) { Latents(l).output_gate = true; }},
    {kDense, "latents and fused_qkv", [](LayerDescription& l) { Latents(l).fused_qkv = true; }},
    {kDense, "latents and shared keys", [](LayerDescription& l) { Latents(l).key_set = 0; }},
    {kDense, "shared keys that no other layer uses",
     [](LayerDescription& l) { l.attention.key_set = 0; }},
    {kSparse, "a shared expert beside transposed experts",
     [](LayerDescription& l) {
       l.experts.tensors = ExpertTensors::kTransposed;
       l.experts.shared_intermediate = 8;
     }},
    {kSparse, "biases of experts", [](LayerDescription& l) { l.experts.bias = true; }},
    {kSparse, "or none", [](LayerDescription& l) { l.experts.chosen = 0; }},
    {kDense, "do not divide value_heads",
     [](LayerDescription& l) {
       l.attention = {};
       l.delta_net.key_heads = 2;
       l.delta_net.value_heads = 3;
     }},
};

TEST(ModelCheckTest, WhatWouldBeComputedWronglyIsRefused) {
  EXPECT_TRUE(CheckModel(Model()).ok()) << CheckModel(Model());
  for (const Case& one : kCases) {
    ModelDescription model = Model();
    one.change(model.layers[static_cast<size_t>(one.layer)]);
    const absl::Status status = CheckModel(model);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.what;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(one.what));
  }
}

TEST(ModelCheckTest, AModelHasLayers) {
  ModelDescription model = Model();
  model.layers.clear();
  EXPECT_EQ(CheckModel(model).message(), "the model has no layers");
}

TEST(ModelCheckTest, PerLayerInputsStandInEveryLayerAndBesideNoExperts) {
  ModelDescription model = Model();
  for (LayerDescription& layer : model.layers) layer.per_layer_input = {4, 11};
  EXPECT_THAT(std::string(CheckModel(model).message()),
              testing::HasSubstr("layer 1 has a per-layer input beside experts"));
  model.layers.resize(1);
  EXPECT_TRUE(CheckModel(model).ok());
}

TEST(ModelCheckTest, SharedKeysHaveTheHeadsOfThoseThatUseThem) {
  ModelDescription model = Model();
  model.layers[0].attention.key_set = model.layers[2].attention.key_set = 0;
  model.layers[2].attention.projects_keys = false;
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  model.layers[0].attention.kv_heads = 1;
  EXPECT_THAT(std::string(CheckModel(model).message()), testing::HasSubstr("layer 2"));
  model.layers[0].attention.kv_heads = 2;
  model.layers[0].attention.head_dim = 8;
  EXPECT_THAT(std::string(CheckModel(model).message()), testing::HasSubstr("layer 2"));
}

TEST(ModelCheckTest, WhatReachesALimitIsTaken) {
  ModelDescription model = Model();
  ExpertsDescription& experts = model.layers[kSparse].experts;
  experts.router.groups = 3;  // each chosen group gives all of its two experts
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  experts.chosen = 6;  // every expert of every group
  experts.router.chosen_groups = 3;
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  model.layers[kDense].attention = {};
  model.layers[kDense].delta_net.key_heads = model.layers[kDense].delta_net.value_heads = 2;
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  Latents(model.layers[kJoined]);
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
}

TEST(ModelCheckTest, TheFirstLayerThatIsRefusedIsNamed) {
  ModelDescription model = Model();
  model.layers[kSparse].experts.chosen = model.layers[kJoined].experts.chosen = 0;
  EXPECT_THAT(std::string(CheckModel(model).message()), testing::StartsWith("layer 1 has "));
}

TEST(ModelCheckTest, ARoutersInputScaleIsNoOnePlusNorm) {
  ModelDescription model = Model();
  model.layers[kSparse].experts.router.input_scale = "scale";
  EXPECT_TRUE(CheckModel(model).ok());
  model.one_plus_norms = true;
  EXPECT_FALSE(CheckModel(model).ok());
}

}  // namespace
}  // namespace megatrain

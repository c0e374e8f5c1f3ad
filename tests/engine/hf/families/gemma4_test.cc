// Gemma 4's reader: its defaults, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/hf/config/ignored_tensors.h"
#include "engine/model/model_layout.h"
#include "tests/engine/hf/families/small_config.h"

namespace megatrain {
namespace {

TEST(Gemma4, HasWiderHeadsWithoutAWindow) {
  const ModelDescription model = Describe("gemma4_text");
  EXPECT_EQ(Windows(model), (std::vector<int64_t>{512, 512, 512, 512, 512, 0, 512, 0}));
  EXPECT_EQ(Ropes(model), (std::vector<int>{1, 1, 1, 1, 1, 0, 1, 0}));
  EXPECT_FALSE(model.one_plus_norms);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(model.embedding_scale, std::sqrt(48.0));
  EXPECT_EQ(model.logit_softcap, 0.0);
  for (const int layer : {0, 5}) {
    const AttentionDescription& attention = model.layers[static_cast<size_t>(layer)].attention;
    EXPECT_EQ(attention.head_dim, layer == 0 ? 256 : 512);
    EXPECT_EQ(attention.kv_heads, 2);
    EXPECT_EQ(attention.score_scale, 1.0);
    EXPECT_EQ(attention.qk_norm, QkNorm::kHead);
    EXPECT_TRUE(attention.value_norm);
    EXPECT_FALSE(attention.values_are_keys);
    EXPECT_TRUE(model.layers[static_cast<size_t>(layer)].output_scale);
  }
  EXPECT_EQ(model.ropes[0].type, RopeType::kProportional);
  EXPECT_EQ(model.ropes[0].rotary_dim, 512);
  EXPECT_EQ(model.ropes[0].turning_pairs, 64);
  EXPECT_EQ(model.ropes[0].theta, 1e6);
  EXPECT_EQ(model.ropes[1].type, RopeType::kDefault);
  EXPECT_EQ(model.ropes[1].rotary_dim, 256);
  EXPECT_EQ(model.ropes[1].theta, 1e4);
}

TEST(Gemma4, LayersShareKeys) {
  // Layers 5 and 7 have no window.
  const ModelDescription model =
      Describe("gemma4_text", {{"num_kv_shared_layers", 2}, {"use_double_wide_mlp", true}});
  std::vector<int> sets;
  std::vector<bool> projects;
  for (const LayerDescription& layer : model.layers) {
    sets.push_back(layer.attention.key_set);
    projects.push_back(layer.attention.projects_keys);
    EXPECT_EQ(layer.feed_forward.intermediate, layer.attention.projects_keys ? 64 : 128);
  }
  EXPECT_EQ(sets, (std::vector<int>{-1, -1, -1, -1, 0, 1, 0, 1}));
  EXPECT_EQ(projects, (std::vector<bool>{true, true, true, true, true, true, false, false}));
  EXPECT_EQ(MakerOfKeys(model, 1), 5);
  EXPECT_EQ(LastUserOfKeys(model, 0), 6);
  EXPECT_EQ(model.layers[6].projected_width(), model.layers[6].attention.q_width());

  const auto refused = [](const json& more, const char* key, const char* what = "") {
    ExpectRefused("gemma4_text", more, key, what);
  };
  refused({{"num_kv_shared_layers", 8}}, "num_kv_shared_layers", "from 0 to 7");
  refused({{"num_kv_shared_layers", 3}}, "num_kv_shared_layers", "layer 5 is one without a window");
  // The units of layers that share keys are twice as wide.
  json wide = {{"use_double_wide_mlp", true}, {"intermediate_size", 1 << 24}};
  EXPECT_EQ(Describe("gemma4_text", wide).layers[7].feed_forward.intermediate, 1 << 24);
  wide["num_kv_shared_layers"] = 2;
  wide["intermediate_size"] = 1 << 23;
  EXPECT_EQ(Describe("gemma4_text", wide).layers[7].feed_forward.intermediate, 1 << 24);
  wide["intermediate_size"] = (1 << 23) + 1;
  refused(wide, "intermediate_size", "twice 8388609");
  json heads = {{"num_kv_shared_layers", 1}};
  heads["per_layer_config"] = {{"5", {{"num_key_value_heads", 1}}}};
  refused(heads, "num_kv_shared_layers", "layer 5, from which it takes them, has 1");
}

// Files may have them all the same.
TEST(Gemma4, KeysThatALayerTakesFromAnotherAreIgnoredInFiles) {
  const ModelDescription model = Describe("gemma4_text", {{"num_kv_shared_layers", 2}});
  const std::string six = "model.layers.6.self_attn.", seven = "model.layers.7.self_attn.";
  std::set<std::string> names = {"model.norm.weight",
                                 "model.layers.5.self_attn.k_proj.weight",
                                 "model.layers.8.self_attn.k_proj.weight",
                                 "model.layers.-1.self_attn.k_proj.weight",
                                 "model.layers.x.self_attn.k_proj.weight",
                                 six + "q_proj.weight",
                                 seven + "o_proj.weight"};
  EXPECT_TRUE(FindIgnoredTensors(model, names).empty());
  const std::map<std::string, std::string> ignored = {
      {six + "k_proj.weight", six + "k_proj.*"},
      {six + "v_proj.weight", six + "v_proj.*"},
      {seven + "k_norm.weight", seven + "k_norm.*"}};
  for (const auto& [name, group] : ignored) names.insert(name);
  EXPECT_EQ(FindIgnoredTensors(model, names), ignored);
}

TEST(Gemma4, LayersHaveInputsOfTheirOwn) {
  const json small = {{"hidden_size_per_layer_input", 6}, {"vocab_size_per_layer_input", 140}};
  const ModelDescription model = Describe("gemma4_text", small);
  const ModelLayout layout = BuildModelLayout(model);
  EXPECT_GE(layout.per_layer_norm_offset, 0);
  int64_t tables = 0;
  for (const TileLayout& tile : layout.tiles) {
    for (const TensorSpec& tensor : tile.tensors) {
      if (tensor.name != "model.embed_tokens_per_layer.weight") continue;
      EXPECT_EQ(tensor.shape, (std::vector<int64_t>{140, 48}));
      EXPECT_EQ(tensor.columns, 6);
      EXPECT_EQ(tensor.source_begin, 6 * tile.layer);
      EXPECT_EQ(RunsOf(tensor)[2].source, 2 * 48 + 6 * tile.layer);
      ++tables;
    }
  }
  EXPECT_EQ(tables, 8);

  const auto refused = [](const json& more, const char* key, const char* what = "") {
    ExpectRefused("gemma4_text", more, key, what);
  };
  refused({{"hidden_size_per_layer_input", 6}, {"vocab_size_per_layer_input", 130}},
          "vocab_size_per_layer_input", "130 is less than vocab_size = 131");
  refused({{"hidden_size_per_layer_input", 6}, {"vocab_size_per_layer_input", 1 << 23}},
          "vocab_size_per_layer_input", "4194304");
  refused({{"hidden_size_per_layer_input", -1}}, "hidden_size_per_layer_input");
  refused({{"hidden_size_per_layer_input", 1 << 20}}, "hidden_size_per_layer_input", "together");
  const json largest = {{"hidden_size_per_layer_input", 1 << 17}};
  EXPECT_EQ(Describe("gemma4_text", largest).layers[7].per_layer_input.width, 1 << 17);
  refused({{"hidden_size_per_layer_input", (1 << 17) + 1}}, "hidden_size_per_layer_input",
          "for each of 8 layers");
  refused({{"hidden_size_per_layer_input", 6},
           {"enable_moe_block", true},
           {"num_experts", 4},
           {"top_k_experts", 2},
           {"moe_intermediate_size", 8}},
          "hidden_size_per_layer_input", "beside experts");
}

TEST(Gemma4, HeadsAreGivenInTwoWays) {
  const json published = {{"attention_k_eq_v", true},
                          {"head_dim", 12},
                          {"global_head_dim", 20},
                          {"num_global_key_value_heads", 1}};
  const json saved = {{"attention_k_eq_v", true},
                      {"head_dim", 12},
                      {"per_layer_config",
                       {{"05", {{"head_dim", 20}, {"num_key_value_heads", 1}}},
                        {"7", {{"head_dim", 20}, {"num_key_value_heads", 1}}}}}};
  const ModelDescription model = Describe("gemma4_text", published);
  const AttentionDescription& full = model.layers[5].attention;
  EXPECT_EQ(full.head_dim, 20);
  EXPECT_EQ(full.kv_heads, 1);
  EXPECT_TRUE(full.values_are_keys);
  EXPECT_EQ(full.projected_width(), 4 * 20 + 20);
  EXPECT_EQ(model.layers[0].attention.projected_width(), 4 * 12 + 2 * 2 * 12);
  EXPECT_EQ(model.ropes[0].turning_pairs, 2);
  EXPECT_EQ(Describe("gemma4_text", saved).layers, model.layers);
  json both = published;
  both["per_layer_config"] = json::object();
  EXPECT_EQ(Describe("gemma4_text", both).layers[5].attention.head_dim, 12) << "the list counts";
  json apart = published;
  apart["attention_k_eq_v"] = false;
  EXPECT_EQ(Describe("gemma4_text", apart).layers[5].attention.kv_heads, 2);
  // The last layer has no window, whatever the list says.
  const json types = std::vector<std::string>(8, "sliding_attention");
  EXPECT_EQ(Windows(Describe("gemma4_text", {{"layer_types", types}})).back(), 0);
  Describe("gemma4_text", {{"use_bidirectional_attention", "vision"}});

  const auto refused = [](const json& more, const char* key, const char* what = "") {
    ExpectRefused("gemma4_text", more, key, what);
  };
  refused({{"use_bidirectional_attention", "all"}}, "use_bidirectional_attention");
  refused({{"global_head_dim", 21}}, "global_head_dim", "21 of layer 5 must be even");
  refused({{"attention_k_eq_v", true}, {"num_global_key_value_heads", 3}},
          "num_global_key_value_heads", "does not divide num_attention_heads = 4");
  refused({{"per_layer_config", 3}}, "per_layer_config", "must be an object");
  refused({{"per_layer_config", {{"8", json::object()}}}}, "per_layer_config", "from 0 to 7");
  refused({{"per_layer_config", {{"5", 12}}}}, "per_layer_config", "under \"5\"");
  refused({{"per_layer_config", {{"5", {{"mystery", 12}}}}}}, "per_layer_config.5.mystery");
  refused({{"per_layer_config", {{"5", {{"head_dim", 9}}}, {"7", {{"head_dim", 9}}}}}}, "even");
  refused({{"per_layer_config", {{"5", {{"head_dim", 20}}}}}}, "per_layer_config",
          "of layer 7 differs from 20");
  refused({{"enable_moe_block", true}}, "num_experts", "is missing");
  refused({{"final_logit_softcapping", -1}}, "final_logit_softcapping");
  refused({{"sliding_window", nullptr}}, "layer_types");
  refused({{"rope_parameters", {{"full_attention", {{"rope_type", "proportional"}, {"beta", 2}}}}}},
          "rope_parameters.full_attention.beta");
  ExpectRefused("gemma3_text",
                {{"rope_parameters", {{"full_attention", {{"rope_type", "proportional"}}}}}},
                "rope_parameters.full_attention.rope_type");
}

}  // namespace
}  // namespace megatrain

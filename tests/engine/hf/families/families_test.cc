// The families' readers: their defaults, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/hf/config/model_family.h"
#include "tests/engine/hf/families/small_config.h"

namespace megatrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<int> Ropes(const ModelDescription& model) {
  std::vector<int> ropes;
  for (const LayerDescription& layer : model.layers) {
    EXPECT_EQ(layer.attention.key_rope, layer.attention.query_rope);
    ropes.push_back(layer.attention.key_rope);
  }
  return ropes;
}

TEST(Families, EachIsDescribedAndHasAnArchitecture) {
  ASSERT_GE(ModelFamilyNames().size(), 17u);
  for (const std::string& family : ModelFamilyNames()) {
    SCOPED_TRACE(family);
    const ModelDescription model = Describe(family);
    EXPECT_EQ(model.family, family);
    EXPECT_EQ(model.layer_count(), 8);
    EXPECT_EQ(model.vocabulary, 131);
    EXPECT_THAT(DescribeModel(model), AllOf(HasSubstr("embedding: 131 x 48"), HasSubstr("head:")));
    EXPECT_THAT(std::string(FindModelFamily(family)->architecture),
                testing::EndsWith("ForCausalLM"));
  }
}

TEST(Families, RefuseAbsurdShapesAndUnknownKeys) {
  for (const std::string& family : ModelFamilyNames()) {
    ExpectRefused(family, {{"num_attention_heads", 0}}, "num_attention_heads");
    ExpectRefused(family, {{"num_key_value_heads", 3}}, "num_key_value_heads", "does not divide");
    ExpectRefused(family, {{"num_hidden_layers", -1}}, "num_hidden_layers");
    ExpectRefused(family, {{"num_hidden_layers", 100000}}, "num_hidden_layers");
    ExpectRefused(family, {{"head_dim", 7}}, "head_dim");
    ExpectRefused(family, {{"mystery", 1}}, "mystery");
    ExpectRefused(family, {{"pad_token_id", 131}}, "pad_token_id");
    ExpectRefused(family, {{"rope_theta", -5}}, "rope_theta");
    ExpectRefused(family, {{"rope_scaling", {{"rope_type", "yarn"}}}}, "factor");
    ExpectRefused(family, {{"attention_dropout", 0.1}}, "attention_dropout");
    ExpectRefused(family, {{"hidden_act", "relu"}, {"hidden_activation", "relu"}}, "hidden_act");
  }
}

TEST(Families, TakeKeysOfPublishedConfigurationsThatSayNothing) {
  Describe("smollm3", {{"max_window_layers", 28}, {"pretraining_tp", 2}});
  Describe("gemma2", {{"sliding_window_size", 4096}, {"cache_implementation", "hybrid"}});
  Describe("llama", {{"is_llama_config", true}, {"transformers.js_config", json::object()}});
  Describe("llama", {{"max_window_layers", 28}, {"use_sliding_window", false}});
  Describe("phi3", {{"auto_map",
                     {{"AutoConfig", "configuration_phi3.Phi3Config"},
                      {"AutoModelForCausalLM", "modeling_phi3.Phi3ForCausalLM"}}},
                    {"full_attn_mod", 1},
                    {"interpolate_factor", 1},
                    {"partial_rotary_factor", 0.5}});
  ExpectRefused("phi3", {{"full_attn_mod", 2}}, "full_attn_mod");
  ExpectRefused("llama",
                {{"auto_map", {{"AutoModelForCausalLM", "modeling_llama.LLaMAForCausalLM"}}}},
                "auto_map");
  ExpectRefused("mistral", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
}

TEST(Families, MistralsWindowIsThereUnlessNull) {
  EXPECT_EQ(Windows(Describe("mistral")), std::vector<int64_t>(8, 4096));
  EXPECT_EQ(Windows(Describe("mistral", {{"sliding_window", 31}})), std::vector<int64_t>(8, 31));
  EXPECT_EQ(Windows(Describe("mistral", {{"sliding_window", nullptr}})),
            std::vector<int64_t>(8, 0));
  ExpectRefused("mistral", {{"sliding_window", 0}}, "sliding_window", "from 1");
}

TEST(Families, Ministral3sQueriesGrowWithThePosition) {
  const ModelDescription model = Describe("ministral3");
  ASSERT_EQ(model.ropes.size(), 2u);
  const AttentionDescription& attention = model.layers[0].attention;
  EXPECT_EQ(attention.head_dim, 128);
  EXPECT_EQ(model.ropes[attention.query_rope].position_scale, 0.1);
  EXPECT_EQ(model.ropes[attention.key_rope].position_scale, 0.0);
  EXPECT_EQ(model.ropes[0].type, RopeType::kYarn);
  EXPECT_EQ(model.ropes[0].original_positions, 16384);
  EXPECT_EQ(model.ropes[0].theta, 1e6);
  ExpectRefused("ministral3",
                {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}},
                "rope_parameters", "llama_4_scaling_beta");
}

TEST(Families, SmolLm3RotatesThreeOfFourLayers) {
  EXPECT_EQ(Ropes(Describe("smollm3")), (std::vector<int>{0, 0, 0, -1, 0, 0, 0, -1}));
  const ModelDescription chosen =
      Describe("smollm3", {{"no_rope_layers", {1, 0, 1, 1, 1, 1, 0, 1, 0}},
                           {"use_sliding_window", true},
                           {"sliding_window", 9}});
  EXPECT_EQ(Ropes(chosen), (std::vector<int>{0, -1, 0, 0, 0, 0, -1, 0}));
  EXPECT_EQ(Windows(chosen), (std::vector<int64_t>{0, 9, 0, 0, 0, 0, 9, 0}));
  ExpectRefused("smollm3", {{"no_rope_layers", {1, 0}}}, "no_rope_layers", "8 zeros and ones");
  ExpectRefused("smollm3", {{"no_rope_layers", {1, 1, 1, 1, 1, 1, 1, 2}}}, "no_rope_layers");
  ExpectRefused("smollm3", {{"no_rope_layer_interval", 0}}, "no_rope_layer_interval");
}

TEST(Families, Phi3sLongropeNeedsAFactorForEachPair) {
  json rope = {
      {"type", "su"}, {"short_factor", {1, 1, 1, 1, 1, 1}}, {"long_factor", {1, 2, 3, 4, 5, 6}}};
  const ModelDescription model =
      Describe("phi3", {{"rope_scaling", rope}, {"original_max_position_embeddings", 64}});
  EXPECT_EQ(model.ropes[0].type, RopeType::kLongrope);
  EXPECT_EQ(model.ropes[0].factor, 4.0);
  EXPECT_TRUE(model.layers[0].attention.fused_qkv);
  rope["long_factor"] = {1, 2, 3};
  ExpectRefused("phi3", {{"rope_scaling", rope}}, "rope_scaling.long_factor", "6 numbers");
  rope["long_factor"] = {1, 2, 3, 4, 5, 0};
  ExpectRefused("phi3", {{"rope_scaling", rope}}, "rope_scaling.long_factor", "number 0");
  rope.erase("long_factor");
  ExpectRefused("phi3", {{"rope_scaling", rope}}, "rope_scaling.long_factor");
  ExpectRefused("phi3", {{"resid_pdrop", 0.1}}, "resid_pdrop");
}

TEST(Families, GranitesFactorsHaveNoDefaultOfLlamas) {
  const ModelDescription plain = Describe("granite");
  EXPECT_EQ(plain.layers[0].attention.score_scale, 1.0);
  const ModelDescription model = Describe("granite", {{"logits_scaling", 8},
                                                      {"residual_multiplier", 0.25},
                                                      {"embedding_multiplier", 12},
                                                      {"attention_multiplier", 0.0625}});
  EXPECT_EQ(model.logit_scale, 0.125);
  EXPECT_EQ(model.embedding_scale, 12.0);
  EXPECT_EQ(model.layers[7].residual_scale, 0.25);
  EXPECT_EQ(model.layers[7].attention.score_scale, 0.0625);
  ExpectRefused("granite", {{"logits_scaling", 0}}, "logits_scaling");
  ExpectRefused("granite", {{"attention_bias", true}, {"residual_multiplier", 0.5}},
                "attention_bias");
}

TEST(Families, Olmo3ScalesTheRopeOfFullLayersAlone) {
  const ModelDescription model = Describe(
      "olmo3",
      {{"rope_theta", 7e5},
       {"rope_scaling",
        {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}}}});
  EXPECT_EQ(Windows(model), (std::vector<int64_t>{4096, 4096, 4096, 0, 4096, 4096, 4096, 0}));
  EXPECT_EQ(Ropes(model), (std::vector<int>{1, 1, 1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(model.ropes[0].type, RopeType::kYarn);
  EXPECT_EQ(model.ropes[0].theta, 7e5);
  EXPECT_EQ(model.ropes[1].type, RopeType::kDefault);
  EXPECT_EQ(model.ropes[1].theta, 5e5);
  ExpectRefused("olmo3", {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}},
                "rope_parameters", "full_attention");
  ExpectRefused("olmo3", {{"sliding_window", nullptr}}, "layer_types");
  ExpectRefused("olmo3", {{"layer_types", {"full_attention"}}}, "layer_types", "8 names");
}

TEST(Families, GemmasDefaults) {
  const ModelDescription two = Describe("gemma2");
  EXPECT_EQ(Windows(two), (std::vector<int64_t>{4096, 0, 4096, 0, 4096, 0, 4096, 0}));
  EXPECT_EQ(two.logit_softcap, 30.0);
  EXPECT_EQ(two.layers[0].attention.softcap, 50.0);
  EXPECT_EQ(two.layers[0].attention.score_scale, 1.0 / 16);
  EXPECT_EQ(two.layers[0].attention.head_dim, 256);
  EXPECT_EQ(two.embedding_scale, std::sqrt(48.0));
  EXPECT_TRUE(two.tied_embeddings);
  EXPECT_EQ(Describe("gemma2", {{"final_logit_softcapping", nullptr}}).logit_softcap, 0.0);

  const ModelDescription three = Describe("gemma3_text", {{"attn_logit_softcapping", 50.0}});
  EXPECT_EQ(Ropes(three), (std::vector<int>{1, 1, 1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(three.ropes[0].theta, 1e6);
  EXPECT_EQ(three.ropes[1].theta, 1e4);
  EXPECT_EQ(three.logit_softcap, 0.0);
  EXPECT_EQ(three.layers[0].attention.softcap, 0.0) << "transformers does not apply it";
  ExpectRefused("gemma3_text", {{"use_bidirectional_attention", true}},
                "use_bidirectional_attention");
  ExpectRefused("gemma2", {{"final_logit_softcapping", -1}}, "final_logit_softcapping");
}

TEST(Families, Glm4RotatesHalfOfAHeadInNeighbouringPairs) {
  const ModelDescription model = Describe("glm4");
  EXPECT_EQ(model.ropes[0].rotary_dim, 64);
  EXPECT_TRUE(model.ropes[0].interleaved);
  EXPECT_TRUE(model.layers[0].attention.qkv_bias);
  EXPECT_FALSE(model.layers[0].attention.output_bias);
  EXPECT_EQ(model.layers[0].feed_forward_norms.norm, "post_attention_layernorm");
  ExpectRefused("glm4", {{"partial_rotary_factor", 1.5}}, "partial_rotary_factor");
}

}  // namespace
}  // namespace megatrain

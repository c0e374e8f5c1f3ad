// The families' readers: their defaults, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/hf/config/model_family.h"
#include "engine/model/model_layout.h"
#include "tests/engine/hf/families/small_config.h"

namespace megatrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

// A missing head_dim is the class's, which is another one in most of these.
TEST(Families, ANullHeadDimIsAnEqualShareOfTheHiddenSize) {
  for (const char* family :
       {"llama", "qwen3", "gemma2", "glm4", "gpt_oss", "ministral3", "ernie4_5", "seed_oss"}) {
    const ModelDescription model = Describe(family, {{"head_dim", nullptr}});
    EXPECT_EQ(model.layers[0].attention.q_width(), model.hidden) << family;
  }
}

TEST(Families, ABiasOfAttentionIsThatOfItsOutputToo) {
  for (const char* family : {"llama", "granite", "olmo2", "olmo3", "gemma2", "gemma3_text",
                             "gemma4_text", "qwen3", "qwen3_moe", "smollm3"}) {
    SCOPED_TRACE(family);
    for (const bool bias : {false, true}) {
      const ModelDescription model = Describe(family, {{"attention_bias", bias}});
      EXPECT_EQ(model.layers[0].attention.qkv_bias, bias);
      EXPECT_EQ(model.layers[0].attention.output_bias, bias);
    }
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
    ExpectRefused(family, {{"rope_scaling", {{"rope_type", "yarn"}}}}, "rope_scaling");
    ExpectRefused(family, {{"attention_dropout", 0.1}}, "attention_dropout");
    ExpectRefused(family, {{"hidden_act", "relu"}, {"hidden_activation", "relu"}}, "hidden_act");
  }
}

TEST(Families, ANullNumberOfKeyHeadsIsThatOfQueryHeads) {
  for (const char* family : {"llama", "mistral", "qwen2", "gemma2", "smollm3"}) {
    const ModelDescription model =
        Describe(family, {{"num_key_value_heads", nullptr}, {"num_attention_heads", 12}});
    EXPECT_EQ(model.layers[0].attention.kv_heads, 12) << family;
  }
}

TEST(Families, RopeObjectsOfLayersStandAlone) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  json inner = yarn;
  inner["original_max_position_embeddings"] = 64;
  for (const char* family : {"olmo3", "gemma3_text"}) {
    SCOPED_TRACE(family);
    const auto original = [&](const json& scaling) {
      return Describe(family, {{"rope_scaling", scaling},
                               {"original_max_position_embeddings", 20},
                               {"max_position_embeddings", 256}})
          .ropes[0]
          .original_positions;
    };
    EXPECT_EQ(original(inner), 64);
    EXPECT_EQ(original(yarn), 256);
    ExpectRefused(family, {{"rope_scaling", {{"type", "linear"}, {"factor", 3.0}}}},
                  "rope_scaling.type", "rope_type");
  }
  EXPECT_EQ(Describe("llama", {{"rope_scaling", inner}, {"original_max_position_embeddings", 20}})
                .ropes[0]
                .original_positions,
            20);
  ExpectRefused("gpt_oss", {{"rope_parameters", json::object()}}, "rope_parameters", "is empty");
}

// The class's own factor would not divide such heads.
TEST(Families, APartialRotationInTheObjectCounts) {
  const json rope = {
      {"rope_parameters",
       {{"rope_type", "default"}, {"rope_theta", 1e4}, {"partial_rotary_factor", 0.4}}},
      {"head_dim", 10}};
  EXPECT_EQ(Describe("glm4", rope).ropes[0].rotary_dim, 4);
  ExpectRefused("glm4", {{"head_dim", 10}}, "partial_rotary_factor", "0.5");
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

TEST(Families, APaddingIdOfTheFamilysOwnIsInTheVocabulary) {
  for (const char* family : {"phi3", "glm4", "smollm3"}) {
    SCOPED_TRACE(family);
    json config = Config(family);
    config.erase("pad_token_id");
    const auto model = Parse(config);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(model.status().message()),
                AllOf(HasSubstr("pad_token_id"), HasSubstr("the family's own")));
  }
  json config = Config("ministral3");  // 11
  config.erase("pad_token_id");
  EXPECT_EQ(Parse(config)->padding_id, 11);
}

TEST(Families, MistralsWindowIsThereUnlessNull) {
  EXPECT_EQ(Windows(Describe("mistral")), std::vector<int64_t>(8, 4096));
  EXPECT_EQ(Windows(Describe("mistral", {{"sliding_window", 31}})), std::vector<int64_t>(8, 31));
  EXPECT_EQ(Windows(Describe("mistral", {{"sliding_window", nullptr}})),
            std::vector<int64_t>(8, 0));
  ExpectRefused("mistral", {{"sliding_window", 0}}, "sliding_window", "from 1");

  // AutoConfig makes a Ministral of one with layer_types.
  json types = json::array();
  for (int layer = 0; layer < 8; ++layer) {
    types.push_back(layer % 3 == 0 ? "full_attention" : "sliding_attention");
  }
  EXPECT_EQ(Windows(Describe("mistral", {{"sliding_window", 5}, {"layer_types", types}})),
            (std::vector<int64_t>{0, 5, 5, 0, 5, 5, 0, 5}));
  EXPECT_EQ(Windows(Describe("mistral", {{"sliding_window", nullptr}, {"layer_types", types}})),
            std::vector<int64_t>(8, 0));
  ExpectRefused("mistral", {{"layer_types", {"full_attention"}}}, "layer_types", "8 names");
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
  EXPECT_EQ(Windows(model), std::vector<int64_t>(8, 0));
  EXPECT_EQ(Windows(Describe("ministral3", {{"sliding_window", 9}})), std::vector<int64_t>(8, 9));
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
  const ModelDescription of_class =
      Describe("phi3", {{"rope_scaling", rope}, {"max_position_embeddings", 8192}});
  EXPECT_EQ(of_class.ropes[0].original_positions, 4096);
  EXPECT_EQ(of_class.ropes[0].factor, 2.0);
  EXPECT_TRUE(model.layers[0].attention.fused_qkv);
  rope["long_factor"] = {1, 2, 3};
  ExpectRefused("phi3", {{"rope_scaling", rope}}, "rope_scaling.long_factor", "6 numbers");
  rope["long_factor"] = {1, 2, 3, 4, 5, 0};
  ExpectRefused("phi3", {{"rope_scaling", rope}}, "rope_scaling.long_factor", "number 0");
  rope.erase("long_factor");
  ExpectRefused("phi3", {{"rope_scaling", rope}}, "rope_scaling.long_factor");
  ExpectRefused("phi3", {{"resid_pdrop", 0.1}}, "resid_pdrop");
}

TEST(Families, BiasesThatAFamilyDoesNotHaveAreRefused) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> keys = {
      {"mistral", {"attention_bias"}},    {"mixtral", {"attention_bias"}},
      {"ministral3", {"attention_bias"}}, {"phi3", {"attention_bias", "lm_head_bias", "mlp_bias"}},
      {"granite", {"mlp_bias"}},          {"smollm3", {"mlp_bias"}}};
  for (const auto& [family, absent] : keys) {
    for (const std::string& key : absent) {
      Describe(family, {{key, false}});
      ExpectRefused(family, {{key, true}}, key, "no bias");
    }
  }
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
  EXPECT_FALSE(model.rounds_embedding_scale);
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
  EXPECT_TRUE(two.rounds_embedding_scale);
  EXPECT_TRUE(two.tied_embeddings);
  EXPECT_EQ(Describe("gemma2", {{"final_logit_softcapping", nullptr}}).logit_softcap, 0.0);

  const ModelDescription three = Describe("gemma3_text", {{"attn_logit_softcapping", 50.0}});
  EXPECT_EQ(Ropes(three), (std::vector<int>{1, 1, 1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(three.ropes[0].theta, 1e6);
  EXPECT_EQ(three.ropes[1].theta, 1e4);
  EXPECT_EQ(three.logit_softcap, 0.0);
  EXPECT_TRUE(three.rounds_embedding_scale);
  EXPECT_EQ(three.layers[0].attention.softcap, 0.0) << "transformers does not apply it";
  ExpectRefused("gemma3_text", {{"use_bidirectional_attention", true}},
                "use_bidirectional_attention");
  ExpectRefused("gemma2", {{"final_logit_softcapping", -1}}, "final_logit_softcapping");
}

TEST(Families, Gemma3sPatternTellsWhichLayersSeeAll) {
  EXPECT_EQ(
      Windows(Describe("gemma3_text", {{"sliding_window", 9}, {"sliding_window_pattern", 3}})),
      (std::vector<int64_t>{9, 9, 0, 9, 9, 0, 9, 9}));
  EXPECT_EQ(Windows(Describe("gemma3_text", {{"sliding_window_pattern", 1}})),
            std::vector<int64_t>(8, 0));
  EXPECT_EQ(
      Describe("gemma3_text", {{"query_pre_attn_scalar", 64}}).layers[0].attention.score_scale,
      0.125);
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

TEST(Families, Exaone4RotatesWhereItHasWindows) {
  const ModelDescription model = Describe("exaone4");
  EXPECT_EQ(Windows(model), (std::vector<int64_t>{4096, 4096, 4096, 0, 4096, 4096, 4096, 0}));
  EXPECT_EQ(Ropes(model), (std::vector<int>{0, 0, 0, -1, 0, 0, 0, -1}));
  EXPECT_EQ(model.layers[0].attention.qk_norm, QkNorm::kHead);
  EXPECT_EQ(model.layers[0].attention_norms.norm, "");
  EXPECT_EQ(model.layers[0].attention_norms.post_norm, "post_attention_layernorm");
  EXPECT_EQ(model.layers[0].feed_forward_norms.norm, "");
  EXPECT_EQ(model.layers[0].feed_forward_norms.post_norm, "post_feedforward_layernorm");
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.ropes[0].theta, 1e4);
  EXPECT_EQ(Ropes(Describe("exaone4", {{"sliding_window", 9}, {"sliding_window_pattern", 2}})),
            (std::vector<int>{0, -1, 0, -1, 0, -1, 0, -1}));

  // As in the published models of 32B and of 1.2B, which has no windows and rotates everywhere.
  const char* const full = "full_attention";
  const char* const sliding = "sliding_attention";
  const json types = {sliding, sliding, sliding, full, sliding, sliding, sliding, full};
  const ModelDescription large =
      Describe("exaone4",
               {{"sliding_window", 9}, {"sliding_window_pattern", "LLLG"}, {"layer_types", types}});
  EXPECT_EQ(Windows(large), (std::vector<int64_t>{9, 9, 9, 0, 9, 9, 9, 0}));
  EXPECT_EQ(Ropes(large), (std::vector<int>{0, 0, 0, -1, 0, 0, 0, -1}));
  const json none = {{"sliding_window", nullptr}, {"sliding_window_pattern", nullptr}};
  EXPECT_EQ(Windows(Describe("exaone4", none)), std::vector<int64_t>(8, 0));
  EXPECT_EQ(Ropes(Describe("exaone4", none)), std::vector<int>(8, 0));
  EXPECT_EQ(Ropes(Describe("exaone4", {{"layer_types", json::array_t(8, full)}})),
            std::vector<int>(8, -1));

  ExpectRefused("exaone4", {{"sliding_window_pattern", "LLLG"}}, "sliding_window_pattern",
                "must be an integer from 1");
  ExpectRefused("exaone4", {{"sliding_window_pattern", 0}}, "sliding_window_pattern");
  ExpectRefused("exaone4", {{"sliding_window_pattern", nullptr}}, "sliding_window_pattern",
                "give layer_types");
  ExpectRefused("exaone4", {{"sliding_window", nullptr}, {"layer_types", types}}, "layer_types");
  ExpectRefused("exaone4", {{"layer_types", {full}}}, "layer_types", "8 names");
  ExpectRefused("exaone4", {{"attention_bias", true}}, "attention_bias");
}

TEST(Families, SeedOssHasBiasesAndNoDropout) {
  const ModelDescription model = Describe("seed_oss");
  EXPECT_TRUE(model.layers[0].attention.qkv_bias);
  EXPECT_FALSE(model.layers[0].attention.output_bias);
  EXPECT_EQ(model.layers[0].attention.head_dim, 128);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_EQ(model.ropes[0].theta, 1e4);
  EXPECT_FALSE(model.tied_embeddings);
  const ModelDescription other = Describe("seed_oss", {{"attention_bias", false},
                                                       {"attention_out_bias", true},
                                                       {"head_dim", nullptr},
                                                       {"attention_dropout", 0},
                                                       {"residual_dropout", 0},
                                                       {"mlp_bias", false}});
  EXPECT_FALSE(other.layers[0].attention.qkv_bias);
  EXPECT_TRUE(other.layers[0].attention.output_bias);
  EXPECT_EQ(other.layers[0].attention.head_dim, 12);
  // As in the published models.
  ExpectRefused("seed_oss", {{"residual_dropout", 0.1}}, "residual_dropout", "set it to 0");
  ExpectRefused("seed_oss", {{"mlp_bias", true}}, "mlp_bias");
  ExpectRefused("seed_oss", {{"attention_out_bias", 1}}, "attention_out_bias", "true or false");
  ExpectRefused("seed_oss", {{"sliding_window", 64}}, "sliding_window");
}

TEST(Families, Ernie45RotatesNeighbouringPairs) {
  const ModelDescription model = Describe("ernie4_5");
  EXPECT_TRUE(model.ropes[0].interleaved);
  EXPECT_EQ(model.ropes[0].theta, 5e5);
  EXPECT_EQ(model.layers[0].attention.head_dim, 128);
  EXPECT_FALSE(model.layers[0].attention.qkv_bias);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(Describe("ernie4_5", {{"head_dim", nullptr}}).layers[0].attention.head_dim, 12);
  Describe("ernie4_5", {{"use_bias", false}});
  ExpectRefused("ernie4_5", {{"use_bias", true}}, "use_bias", "the MLP has none");
}

// Each value is at an end of what the key may have.
TEST(Families, SettingsMayBeAtTheEndsOfTheirRanges) {
  EXPECT_EQ(Describe("phi3", {{"partial_rotary_factor", 1.0}}).ropes[0].rotary_dim, 12);
  EXPECT_EQ(Describe("glm4", {{"head_dim", 4}}).ropes[0].rotary_dim, 2);
  json config = Config("ministral3", {{"vocab_size", 12}});
  config.erase("pad_token_id");
  EXPECT_EQ(Parse(config)->padding_id, 11);
  config["vocab_size"] = 11;
  EXPECT_THAT(std::string(Parse(config).status().message()), HasSubstr("the family's own, 11"));
}

TEST(Families, Phi3HasNoRopeButTheDefaultAndLongrope) {
  ExpectRefused("phi3", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}},
                "rope_scaling", "longrope alone");
  ExpectRefused("phi3", {{"interpolate_factor", 2}}, "interpolate_factor", "not interpolated");
  ExpectRefused("phi3", {{"embd_pdrop", 0.1}}, "embd_pdrop", "set it to 0");
}

}  // namespace
}  // namespace megatrain

// The families with experts: their defaults, and what their readers refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/hf/config/config_readers.h"
#include "engine/model/parameter_count.h"
#include "tests/engine/hf/families/small_config.h"

namespace megatrain {
namespace {

using testing::ElementsAre;

std::vector<int64_t> Experts(const ModelDescription& model) {
  std::vector<int64_t> counts;
  for (const LayerDescription& layer : model.layers) {
    EXPECT_EQ(layer.experts.count > 0 && !layer.joins(), layer.feed_forward.intermediate == 0);
    counts.push_back(layer.experts.count);
  }
  return counts;
}

TEST(Experts, MixtralsLieUnderNamesOfTheirOwn) {
  const ModelDescription model = Describe("mixtral");
  EXPECT_EQ(Experts(model), std::vector<int64_t>(8, 8));
  const ExpertsDescription& experts = model.layers[7].experts;
  EXPECT_EQ(experts.chosen, 2);
  EXPECT_EQ(experts.intermediate, 64);
  EXPECT_EQ(experts.name, "block_sparse_moe.experts");
  EXPECT_EQ(experts.gate_name, "w1");
  EXPECT_EQ(experts.up_name, "w3");
  EXPECT_EQ(experts.down_name, "w2");
  EXPECT_EQ(experts.router.name, "block_sparse_moe.gate");
  EXPECT_EQ(experts.router.scores, RouterScores::kSoftmax);
  EXPECT_TRUE(experts.router.normalized);
  EXPECT_EQ(experts.tensors, ExpertTensors::kApart);
  EXPECT_EQ(experts.experts_per_tile, 8);
  EXPECT_EQ(experts.auxiliary_loss, 0.0);
  EXPECT_EQ(model.ropes[0].theta, 1e6);
  EXPECT_EQ(Windows(model), std::vector<int64_t>(8, 0));
  EXPECT_EQ(Windows(Describe("mixtral", {{"sliding_window", 31}})), std::vector<int64_t>(8, 31));
  Describe("mixtral", {{"router_jitter_noise", 0}, {"output_router_logits", true}});
  ExpectRefused("mixtral", {{"router_jitter_noise", 0.01}}, "router_jitter_noise", "set it to 0");
}

TEST(Experts, Qwen3sAreInSomeLayers) {
  const ModelDescription model = Describe("qwen3_moe");
  EXPECT_EQ(Experts(model), std::vector<int64_t>(8, 128));
  EXPECT_EQ(model.layers[0].experts.chosen, 8);
  EXPECT_EQ(model.layers[0].experts.intermediate, 768);
  EXPECT_FALSE(model.layers[0].experts.router.normalized);
  EXPECT_EQ(model.layers[0].attention.qk_norm, QkNorm::kHead);
  EXPECT_TRUE(
      Describe("qwen3_moe", {{"norm_topk_prob", true}}).layers[0].experts.router.normalized);
  EXPECT_EQ(Experts(Describe(
                "qwen3_moe",
                {{"num_experts", 16}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {3, 4}}})),
            (std::vector<int64_t>{0, 16, 0, 0, 0, 16, 0, 16}));
  EXPECT_EQ(Describe("qwen3_moe", {{"decoder_sparse_step", 2}}).layers[0].feed_forward.intermediate,
            64);
  // All layers slide or none.
  const json window = {{"sliding_window", 9}, {"max_window_layers", 4}};
  EXPECT_EQ(Windows(Describe("qwen3_moe", window)), std::vector<int64_t>(8, 0));
  json used = window;
  used["use_sliding_window"] = true;
  EXPECT_EQ(Windows(Describe("qwen3_moe", used)), std::vector<int64_t>(8, 9));

  ExpectRefused("qwen3_moe", {{"decoder_sparse_step", 0}}, "decoder_sparse_step");
  ExpectRefused("qwen3_moe", {{"decoder_sparse_step", -2}}, "decoder_sparse_step");
  ExpectRefused("qwen3_moe", {{"mlp_only_layers", {8}}}, "mlp_only_layers", "from 0 to 7");
  ExpectRefused("qwen3_moe", {{"mlp_only_layers", {-1}}}, "mlp_only_layers", "from 0 to 7");
  ExpectRefused("qwen3_moe", {{"mlp_only_layers", {1.5}}}, "mlp_only_layers");
  ExpectRefused("qwen3_moe", {{"mlp_only_layers", UINT64_MAX}}, "mlp_only_layers", "a list");
  ExpectRefused("qwen3_moe", {{"mlp_only_layers", {UINT64_MAX}}}, "mlp_only_layers");
  ExpectRefused("qwen3_moe", {{"norm_topk_prob", 1}}, "norm_topk_prob");
  // As in Qwen 3 Coder's configuration.
  Describe("qwen3_moe",
           {{"qkv_bias", false}, {"use_qk_norm", true}, {"shared_expert_intermediate_size", 0}});
  ExpectRefused("qwen3_moe", {{"shared_expert_intermediate_size", 64}},
                "shared_expert_intermediate_size");
}

TEST(Experts, Qwen3NextsAreBesideAGatedOneAndBehindDeltaNets) {
  const ModelDescription model = Describe("qwen3_next");
  EXPECT_EQ(Experts(model), std::vector<int64_t>(8, 512));
  const ExpertsDescription& experts = model.layers[0].experts;
  EXPECT_EQ(experts.chosen, 10);
  EXPECT_TRUE(experts.router.normalized);
  EXPECT_EQ(experts.shared_intermediate, 512);
  EXPECT_EQ(experts.shared_name, "mlp.shared_expert");
  EXPECT_TRUE(experts.shared_gate);
  EXPECT_TRUE(model.one_plus_norms);
  EXPECT_EQ(model.ropes[0].rotary_dim, 64);  // a quarter of a head
  for (size_t i = 0; i < 8; ++i) {
    const LayerDescription& layer = model.layers[i];
    const bool linear = i % 4 != 3;
    EXPECT_EQ(layer.attention_kind(), linear ? AttentionKind::kDeltaNet : AttentionKind::kSoftmax);
    EXPECT_EQ(layer.attention.output_gate, !linear);
    EXPECT_EQ(layer.projected_width(), linear ? 12352 : 4 * 512 + 2 * 512);
    EXPECT_EQ(layer.mixed_width(), linear ? 4096 : 4 * 256);
  }
  EXPECT_EQ(model.layers[0].delta_net.tensors, DeltaTensors::kByKeyHead);
  EXPECT_EQ(Experts(Describe("qwen3_next", {{"mlp_only_layers", {1}}})),
            (std::vector<int64_t>{512, 0, 512, 512, 512, 512, 512, 512}));
  EXPECT_EQ(Describe("qwen3_next", {{"full_attention_interval", 1}}).layers[0].attention_kind(),
            AttentionKind::kSoftmax);
  EXPECT_EQ(Describe("qwen3_5_text").layers[0].delta_net.tensors, DeltaTensors::kApart);
  EXPECT_EQ(Experts(Describe("qwen3_5_text")), std::vector<int64_t>(8, 0));
  EXPECT_EQ(Experts(Describe("qwen3_5_moe_text")), std::vector<int64_t>(8, 256));

  ExpectRefused("qwen3_next", {{"layer_types", {"sliding_attention"}}}, "layer_types", "a list");
  ExpectRefused("qwen3_next", {{"num_hidden_layers", 1}, {"layer_types", {"sliding_attention"}}},
                "layer_types", "full_attention and linear_attention");
  ExpectRefused("qwen3_next", {{"linear_num_key_heads", 3}}, "linear_num_value_heads",
                "no multiple of linear_num_key_heads = 3");
  ExpectRefused("qwen3_next", {{"linear_num_key_heads", 0}}, "linear_num_key_heads");
  ExpectRefused("qwen3_next", {{"linear_conv_kernel_dim", 9}}, "linear_conv_kernel_dim");
  ExpectRefused("qwen3_next", {{"linear_conv_kernel_dim", 1}}, "linear_conv_kernel_dim");
  // More than kernels hold at once.
  ExpectRefused("qwen3_next",
                {{"linear_num_key_heads", 1},
                 {"linear_num_value_heads", 4096},
                 {"linear_key_head_dim", 1024},
                 {"linear_value_head_dim", 1024}},
                "linear_value_head_dim", "4294967296 elements, more than 1048576");
  ExpectRefused("qwen3_next", {{"linear_num_key_heads", 4096}, {"linear_num_value_heads", 4096}},
                "linear_num_value_heads", "channels, more than 131072");
  Describe("qwen3_5_text", {{"output_gate_type", "swish"}});
  ExpectRefused("qwen3_5_text", {{"output_gate_type", "sigmoid"}}, "output_gate_type");
  ExpectRefused("qwen3_next", {{"hidden_act", "gelu_new"}}, "hidden_act", "must be silu");
  ExpectRefused("qwen3_5_text", {{"attn_output_gate", false}}, "attn_output_gate");
  ExpectRefused("qwen3_5_text", {{"mamba_ssm_dtype", "bfloat16"}}, "mamba_ssm_dtype");
  ExpectRefused("qwen3_5_moe_text", {{"norm_topk_prob", false}}, "norm_topk_prob");
  ExpectRefused("qwen3_5_moe_text", {{"mlp_only_layers", {0}}}, "mlp_only_layers");
  ExpectRefused("qwen3_5_moe_text", {{"shared_expert_intermediate_size", 0}},
                "shared_expert_intermediate_size");
}

TEST(Experts, GptOssHasSinksBiasesAndAClampedGate) {
  const ModelDescription model = Describe("gpt_oss");
  EXPECT_EQ(Experts(model), std::vector<int64_t>(8, 128));
  EXPECT_EQ(Windows(model), (std::vector<int64_t>{128, 0, 128, 0, 128, 0, 128, 0}));
  const AttentionDescription& attention = model.layers[1].attention;
  EXPECT_TRUE(attention.sinks && attention.qkv_bias && attention.output_bias);
  EXPECT_EQ(attention.head_dim, 64);
  const ExpertsDescription& experts = model.layers[0].experts;
  EXPECT_EQ(experts.chosen, 4);
  EXPECT_EQ(experts.intermediate, 64);
  EXPECT_EQ(experts.activation, GluActivation::kClampedSilu);
  EXPECT_EQ(experts.limit, 7.0);
  EXPECT_EQ(experts.slope, 1.702);
  EXPECT_TRUE(experts.bias && experts.transposed());
  EXPECT_EQ(experts.name, "mlp.experts");
  EXPECT_EQ(experts.router.name, "mlp.router");
  EXPECT_EQ(experts.router.scores, RouterScores::kSoftmaxOfChosen);
  EXPECT_TRUE(experts.router.bias);
  EXPECT_FALSE(experts.router.normalized);
  const RopeConfig& rope = model.ropes[0];
  EXPECT_EQ(rope.type, RopeType::kYarn);
  EXPECT_EQ(rope.theta, 150000.0);
  EXPECT_EQ(rope.factor, 32.0);
  EXPECT_EQ(rope.original_positions, 4096);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(Describe("gpt_oss", {{"rope_theta", 1e4}}).ropes[0].theta, 1e4);
  const ModelDescription plain =
      Describe("gpt_oss", {{"attention_bias", false}, {"swiglu_limit", 2}, {"swiglu_alpha", 1}});
  EXPECT_FALSE(plain.layers[0].attention.qkv_bias || plain.layers[0].attention.output_bias);
  EXPECT_EQ(plain.layers[0].experts.limit, 2.0);
  EXPECT_EQ(plain.layers[0].experts.slope, 1.0);
  Describe("gpt_oss", {{"experts_per_token", 4}, {"initial_context_length", 4096}});

  ExpectRefused("gpt_oss", {{"experts_per_token", 2}}, "experts_per_token");
  ExpectRefused("gpt_oss", {{"swiglu_limit", 0}}, "swiglu_limit");
  ExpectRefused("gpt_oss", {{"swiglu_alpha", -1.702}}, "swiglu_alpha");
  ExpectRefused("gpt_oss", {{"sliding_window", nullptr}}, "layer_types");
  ExpectRefused("gpt_oss", {{"hidden_act", "gelu_pytorch_tanh"}}, "hidden_act");
}

TEST(Experts, Glm4sAreCorrectedAndHaveASharedOne) {
  const json small = {{"n_routed_experts", 24}, {"moe_intermediate_size", 20}};
  const ModelDescription model = Describe("glm4_moe", small);
  EXPECT_EQ(Experts(model), (std::vector<int64_t>{0, 24, 24, 24, 24, 24, 24, 24}));
  EXPECT_EQ(model.layers[0].feed_forward.intermediate, 64);
  const ExpertsDescription& experts = model.layers[1].experts;
  EXPECT_EQ(experts.chosen, 8);
  EXPECT_EQ(experts.shared_intermediate, 20);
  EXPECT_EQ(experts.shared_name, "mlp.shared_experts");
  EXPECT_EQ(experts.router.scores, RouterScores::kSigmoid);
  EXPECT_TRUE(experts.router.correction && experts.router.normalized);
  EXPECT_EQ(experts.router.scale, 1.0);
  EXPECT_EQ(experts.auxiliary_loss, 0.0);
  EXPECT_EQ(model.ropes[0].rotary_dim, 6);
  EXPECT_FALSE(model.ropes[0].interleaved);
  json full = small;
  full.update({{"n_group", 6},
               {"topk_group", 3},
               {"n_shared_experts", 2},
               {"routed_scaling_factor", 2.5},
               {"first_k_dense_replace", 8},
               {"use_qk_norm", true},
               {"attention_bias", true},
               {"num_nextn_predict_layers", 1}});
  EXPECT_EQ(Experts(Describe("glm4_moe", full)), std::vector<int64_t>(8, 0));
  full["first_k_dense_replace"] = 0;
  const ModelDescription grouped = Describe("glm4_moe", full);
  EXPECT_EQ(grouped.layers[0].experts.router.groups, 6);
  EXPECT_EQ(grouped.layers[0].experts.router.chosen_groups, 3);
  EXPECT_EQ(grouped.layers[0].experts.router.scale, 2.5);
  EXPECT_EQ(grouped.layers[0].experts.shared_intermediate, 40);
  EXPECT_EQ(grouped.layers[0].attention.qk_norm, QkNorm::kHead);
  EXPECT_TRUE(grouped.layers[0].attention.qkv_bias);
  EXPECT_FALSE(grouped.layers[0].attention.output_bias);

  const auto refused = [&](const json& more, const char* key, const char* what = "") {
    json config = small;
    config.update(more);
    ExpectRefused("glm4_moe", config, key, what);
  };
  refused({{"n_group", 5}}, "n_group", "5 does not divide the 24 experts");
  refused({{"n_group", 0}}, "n_group");
  refused({{"n_group", 4}, {"topk_group", 5}}, "topk_group", "5 is more than n_group = 4");
  refused({{"topk_group", 0}}, "topk_group");
  refused({{"n_group", 8}, {"topk_group", 2}}, "num_experts_per_tok",
          "8 is more than the 6 experts of topk_group = 2 groups");
  refused({{"first_k_dense_replace", -1}}, "first_k_dense_replace");
  refused({{"first_k_dense_replace", 9}}, "first_k_dense_replace", "from 0 to 8");
  refused({{"routed_scaling_factor", -1}}, "routed_scaling_factor");
  refused({{"routed_scaling_factor", 0}}, "routed_scaling_factor");
  refused({{"n_shared_experts", 0}}, "n_shared_experts");
  refused({{"n_shared_experts", 4096}, {"moe_intermediate_size", 65536}}, "n_shared_experts",
          "together");
  refused({{"num_local_experts", 12}}, "num_local_experts", "another name of n_routed_experts");
}

// As in transformers' yarn_apply_mscale, which looks at the type's name and at nothing else.
TEST(Experts, DeepseeksScoresAreScaledForEveryTypeOfRopeButTheDefault) {
  const std::vector<double> factors(4, 1.0);
  for (const char* type : {"default", "dynamic", "linear", "llama3", "yarn", "longrope"}) {
    SCOPED_TRACE(type);
    const json rope = {{"rope_type", type},       {"factor", 4.0},
                       {"mscale_all_dim", 2.0},   {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0}, {"short_factor", factors},
                       {"long_factor", factors}};
    const ModelDescription model = Describe("deepseek_v3", {{"n_routed_experts", 24},
                                                            {"moe_intermediate_size", 20},
                                                            {"qk_nope_head_dim", 8},
                                                            {"qk_rope_head_dim", 8},
                                                            {"rope_scaling", rope}});
    const double m = type == std::string("default") ? 1.0 : 0.2 * std::log(4.0) + 1;
    EXPECT_NEAR(model.layers[0].attention.score_scale, m * m / 4, 1e-12);
  }
  const json dynamic = {{"rope_type", "dynamic"}, {"mscale_all_dim", 2.0}};
  ExpectRefused("deepseek_v3", {{"rope_scaling", dynamic}}, "rope_scaling.factor", "is missing");
}

TEST(Experts, DeepseeksAttendThroughLatents) {
  const json small = {{"n_routed_experts", 24}, {"moe_intermediate_size", 20}};
  const auto describe = [&](const json& more) {
    json config = small;
    config.update(more);
    return Describe("deepseek_v3", config);
  };
  const ModelDescription model = describe(json::object());
  EXPECT_EQ(Experts(model), (std::vector<int64_t>{0, 0, 0, 24, 24, 24, 24, 24}));
  const ExpertsDescription& experts = model.layers[3].experts;
  EXPECT_EQ(experts.router.groups, 8);
  EXPECT_EQ(experts.router.chosen_groups, 4);
  EXPECT_EQ(experts.router.scale, 2.5);
  EXPECT_TRUE(experts.router.correction && experts.router.normalized);
  const AttentionDescription& attention = model.layers[0].attention;
  EXPECT_EQ(attention.kv_heads, attention.heads);
  EXPECT_EQ(attention.head_dim, 192);
  EXPECT_EQ(attention.value_dim(), 128);
  EXPECT_EQ(attention.latent.query_rank, 1536);
  EXPECT_EQ(attention.latent.key_value_rank, 512);
  EXPECT_EQ(attention.latent.norm_epsilon, 1e-6);
  EXPECT_FALSE(attention.qkv_bias || attention.output_bias);
  EXPECT_EQ(attention.score_scale, 1 / std::sqrt(192.0));
  EXPECT_EQ(model.layers[0].projected_width(), 1536 + 512 + 64);
  EXPECT_EQ(model.ropes[0].rotary_dim, 64);
  EXPECT_TRUE(model.ropes[0].interleaved);
  EXPECT_EQ(model.norm_epsilon, 1e-6);

  const ModelDescription plain = describe(
      {{"q_lora_rank", nullptr}, {"rope_interleave", false}, {"first_k_dense_replace", 0}});
  EXPECT_EQ(plain.layers[0].attention.latent.query_rank, 0);
  EXPECT_EQ(plain.layers[0].projected_width(), plain.layers[0].attention.q_width() + 512 + 64);
  EXPECT_FALSE(plain.ropes[0].interleaved);
  // (0.1 * 2 * ln(40) + 1)^2, and 0.1 ln(40) + 1 over 0.1 * 2 * ln(40) + 1.
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 40.0},
                     {"original_max_position_embeddings", 4096},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 2.0}};
  const double all_dim = 0.2 * std::log(40.0) + 1;
  const ModelDescription longer = describe({{"rope_scaling", yarn}});
  EXPECT_NEAR(longer.layers[0].attention.score_scale, all_dim * all_dim / std::sqrt(192.0), 1e-12);
  EXPECT_NEAR(longer.ropes[0].attention_factor, (0.1 * std::log(40.0) + 1) / all_dim, 1e-12);
  // One of the two alone is not looked at there.
  json alone = yarn;
  alone["mscale"] = 0.5;
  alone.erase("mscale_all_dim");
  EXPECT_NEAR(describe({{"rope_scaling", alone}}).ropes[0].attention_factor,
              0.1 * std::log(40.0) + 1, 1e-12);
  // As published, and as transformers saves it.
  describe({{"scoring_func", "sigmoid"},
            {"topk_method", "noaux_tc"},
            {"moe_layer_freq", 1},
            {"ep_size", 1},
            {"aux_loss_alpha", 0.001},
            {"seq_aux", true},
            {"num_nextn_predict_layers", 1},
            {"auto_map", {{"AutoModelForCausalLM", "modeling_deepseek.DeepseekV3ForCausalLM"}}}});

  const auto refused = [&](const json& more, const char* key, const char* what = "") {
    json config = small;
    config.update(more);
    ExpectRefused("deepseek_v3", config, key, what);
  };
  refused({{"num_key_value_heads", 2}}, "num_key_value_heads", "must be num_attention_heads");
  refused({{"head_dim", 12}}, "head_dim", "12 must be qk_rope_head_dim = 64, or be left out");
  refused({{"qk_rope_head_dim", 7}}, "head_dim", "must be even");
  refused({{"qk_nope_head_dim", 1000}}, "qk_nope_head_dim", "are more than 1024 together");
  refused({{"qk_head_dim", 128}}, "qk_head_dim", "together");
  refused({{"v_head_dim", 0}}, "v_head_dim");
  refused({{"kv_lora_rank", 0}}, "kv_lora_rank");
  refused({{"q_lora_rank", -1}}, "q_lora_rank");
  refused({{"attention_bias", true}, {"q_lora_rank", nullptr}}, "attention_bias",
          "not supported where q_lora_rank is null");
  refused({{"n_group", 5}}, "n_group", "5 does not divide the 24 experts");
  refused({{"n_group", 2}}, "topk_group", "4 is more than n_group = 2");
  refused({{"scoring_func", "softmax"}}, "scoring_func");
  refused({{"topk_method", "greedy"}}, "topk_method");
  refused({{"moe_layer_freq", 2}}, "moe_layer_freq");
}

TEST(Experts, Gemma4sAreBesideADenseUnit) {
  const json small = {{"enable_moe_block", true},
                      {"num_experts", 24},
                      {"top_k_experts", 3},
                      {"moe_intermediate_size", 20}};
  const ModelDescription model = Describe("gemma4_text", small);
  EXPECT_EQ(Experts(model), std::vector<int64_t>(8, 24));
  const LayerDescription& layer = model.layers[0];
  EXPECT_TRUE(layer.joins());
  EXPECT_EQ(layer.feed_forward.intermediate, 64);
  EXPECT_EQ(layer.experts.chosen, 3);
  EXPECT_EQ(layer.experts.intermediate, 20);
  EXPECT_EQ(layer.experts.tensors, ExpertTensors::kStacked);
  EXPECT_EQ(layer.experts.activation, GluActivation::kGeluTanh);
  EXPECT_TRUE(layer.experts.router.normalized);
  EXPECT_EQ(layer.experts.router.input_scale, "router.scale");
  EXPECT_EQ(layer.experts_norm(), "pre_feedforward_layernorm_2");
  EXPECT_EQ(layer.experts.auxiliary_loss, 0.0);
  // Without enable_moe_block nothing is made of the other keys.
  EXPECT_EQ(Experts(Describe("gemma4_text", {{"num_experts", 24}})), std::vector<int64_t>(8, 0));
  const auto refused = [&](const json& more, const char* key, const char* what = "") {
    json config = small;
    config.update(more);
    ExpectRefused("gemma4_text", config, key, what);
  };
  refused({{"num_experts", nullptr}}, "num_experts", "is missing");
  refused({{"top_k_experts", nullptr}}, "top_k_experts", "is missing");
  refused({{"moe_intermediate_size", nullptr}}, "moe_intermediate_size", "is missing");
  refused({{"top_k_experts", 25}}, "top_k_experts", "25 is more than the 24 experts");
  refused({{"num_experts_per_tok", 3}}, "num_experts_per_tok");
}

struct Keys {
  const char* family;
  const char* count;
  const char* intermediate;
};
constexpr Keys kKeys[] = {{"mixtral", "num_local_experts", "intermediate_size"},
                          {"qwen3_moe", "num_local_experts", "moe_intermediate_size"},
                          {"gpt_oss", "num_local_experts", "intermediate_size"},
                          {"glm4_moe", "n_routed_experts", "moe_intermediate_size"}};

TEST(Experts, AbsurdOnesAreRefused) {
  for (const auto& [family, count, intermediate] : kKeys) {
    ExpectRefused(family, {{count, 0}}, count);
    ExpectRefused(family, {{count, -8}}, count);
    ExpectRefused(family, {{count, kExpertsMax + 1}}, count);
    ExpectRefused(family, {{"num_experts_per_tok", 0}}, "num_experts_per_tok");
    ExpectRefused(family, {{"num_experts_per_tok", 3}, {count, 2}}, "num_experts_per_tok",
                  "3 is more than the 2 experts");
    ExpectRefused(family, {{"num_experts_per_tok", kChosenExpertsMax + 1}}, "num_experts_per_tok");
    ExpectRefused(family, {{intermediate, 0}}, intermediate);
    ExpectRefused(family, {{intermediate, kIntermediateMax + 1}}, intermediate);
    ExpectRefused(family, {{intermediate, kIntermediateMax / 64 + 1}, {count, 64}}, intermediate,
                  "for each of 64 experts");
    // The products of the largest sizes that are accepted.
    const ModelDescription largest = Describe(
        family,
        {{"hidden_size", kHiddenMax}, {"head_dim", 4}, {count, kExpertsMax}, {intermediate, 4096}});
    const int64_t parameters = ParameterCount(largest);
    EXPECT_GT(parameters, 7 * 3 * (kHiddenMax << 24));
    EXPECT_LT(parameters, INT64_MAX / kLayersMax);
    ExpectRefused(family, {{"num_hidden_layers", 34}, {count, kExpertsMax}, {intermediate, 2}},
                  "experts in each layer that has some are");
    ExpectRefused(family, {{"output_router_logits", "yes"}}, "output_router_logits");
    Describe(family, {{"output_router_logits", true}});
  }
  for (const char* family : {"mixtral", "qwen3_moe", "gpt_oss"}) {
    EXPECT_EQ(Describe(family, {{"router_aux_loss_coef", 0.02}, {"output_router_logits", true}})
                  .layers[0]
                  .experts.auxiliary_loss,
              0.02);
    EXPECT_EQ(Describe(family, {{"output_router_logits", true}}).layers[0].experts.auxiliary_loss,
              0.001);
    ExpectRefused(family, {{"router_aux_loss_coef", -0.02}}, "router_aux_loss_coef");
    EXPECT_EQ(Experts(Describe(family, {{"num_experts", 16}})), std::vector<int64_t>(8, 16));
    ExpectRefused(family, {{"num_experts", 16}, {"num_local_experts", 8}}, "num_experts",
                  "another name of num_local_experts, which is 8");
  }
}

TEST(Experts, AllMayBeChosen) {
  const ModelDescription model =
      Describe("mixtral", {{"num_local_experts", 2}, {"num_experts_per_tok", 2}});
  EXPECT_EQ(model.layers[0].experts.count, 2);
  EXPECT_EQ(model.layers[0].experts.chosen, 2);
  // All eight of the one group that counts, too.
  Describe(
      "glm4_moe",
      {{"n_routed_experts", 24}, {"moe_intermediate_size", 20}, {"n_group", 3}, {"topk_group", 1}});
}

}  // namespace
}  // namespace megatrain

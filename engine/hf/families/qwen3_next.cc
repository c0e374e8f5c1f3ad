// Qwen 3 Next and Qwen 3.5: gated delta nets in most layers, attention with a gate in every fourth,
// norms that multiply by 1 + weight, and, beside the experts, one that all tokens go through by a
// gate. Qwen Team 2025, 2026; Yang et al. 2024.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/device/delta_args.h"
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

constexpr int64_t kStateElementsMax = 1 << 20;  // Qwen 3 Next has 2^15
constexpr int64_t kConvChannelsMax = 1 << 17;   // Qwen 3 Next has 2^13

DeltaNetDescription ReadDeltaNet(JsonFields& fields, DeltaTensors tensors) {
  DeltaNetDescription d;
  d.tensors = tensors;
  d.key_heads = fields.Integer("linear_num_key_heads", 1, kHeadsMax, 16);
  d.value_heads = fields.Integer("linear_num_value_heads", 1, kHeadsMax, 32);
  d.key_dim = fields.Integer("linear_key_head_dim", 1, kHeadDimMax, 128);
  d.value_dim = fields.Integer("linear_value_head_dim", 1, kHeadDimMax, 128);
  d.kernel = fields.Integer("linear_conv_kernel_dim", 2, kCausalConvKernelMax, 4);
  if (d.value_heads % d.key_heads != 0) {
    fields.Refuse(
        "linear_num_value_heads",
        absl::StrCat(d.value_heads, " is no multiple of linear_num_key_heads = ", d.key_heads));
  }
  // Kernels hold the states of a key head's value heads at once, and sums over the convolution.
  const int64_t states = d.value_heads / d.key_heads * d.key_dim * d.value_dim;
  if (states > kStateElementsMax) {
    fields.Refuse("linear_value_head_dim",
                  absl::StrCat("the value heads of a key head have states of ", states,
                               " elements, more than ", kStateElementsMax));
  }
  if (d.channels() > kConvChannelsMax) {
    fields.Refuse("linear_num_value_heads",
                  absl::StrCat("the convolution has ", d.channels(), " channels, more than ",
                               kConvChannelsMax));
  }
  // States and their gradients are FP32 in any case.
  fields.MustBe("mamba_ssm_dtype", "float32", "states are FP32");
  return d;
}

// Reads everything but experts.
ModelDescription ReadHybrid(JsonFields& fields, ModelDefaults defaults, DeltaTensors tensors) {
  defaults.head_dim = 256;
  defaults.heads = 16;
  defaults.max_positions = 32768;
  ModelDescription model = ReadUniformModel(fields, defaults);
  model.one_plus_norms = true;
  model.ropes = {ReadRope(fields, model, {.rotary_fraction = 0.25, .image_positions = true})};
  if (model.layers[0].feed_forward.activation != GluActivation::kSilu) {
    fields.Refuse("hidden_act", "must be silu, which the convolutions of delta nets have");
  }
  fields.MustBe("attn_output_gate", true, "attention has a gate");
  // The published code's name of the gate's function: x * sigmoid(gate).
  const std::string gate = fields.String("output_gate_type", "swish");
  if (gate != "swish" && gate != "silu") {
    fields.Refuse("output_gate_type", absl::StrCat("\"", gate, "\" must be swish or silu"));
  }
  fields.MustBe("use_sliding_window", false, "this family has no windows");
  fields.Find("sliding_window");
  fields.Find("max_window_layers");
  // Layers that predict further tokens come after the decoder, which does without them.
  (void)fields.Integer("mtp_num_hidden_layers", 0, kLayersMax, 1);
  (void)fields.Boolean("mtp_use_dedicated_embeddings", false);
  const bool bias = fields.Boolean("attention_bias", false);
  const DeltaNetDescription delta_net = ReadDeltaNet(fields, tensors);
  const int64_t interval = fields.Integer("full_attention_interval", 1, kLayersMax, 4);
  const std::vector<bool> linear =
      ReadLayersOfType(fields, model.layer_count(), "linear_attention",
                       [&](int64_t layer) { return (layer + 1) % interval != 0; });
  for (size_t i = 0; i < model.layers.size(); ++i) {
    LayerDescription& layer = model.layers[i];
    if (linear[i]) {
      layer.attention = AttentionDescription();
      layer.delta_net = delta_net;
      continue;
    }
    layer.attention.output_gate = true;
    layer.attention.qk_norm = QkNorm::kHead;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
  }
  return model;
}

// Adds what both families have beside the experts' own shapes.
void AddSharedExpert(JsonFields& fields, ExpertsDescription& experts) {
  experts.shared_intermediate =
      fields.Integer("shared_expert_intermediate_size", 1, kIntermediateMax, 512);
  experts.shared_name = "mlp.shared_expert";
  experts.shared_gate = true;
}

ModelDescription DescribeQwen3Next(JsonFields& fields) {
  ModelDescription model = ReadHybrid(
      fields,
      {.vocabulary = 151936, .hidden = 2048, .intermediate = 5632, .layers = 48, .kv_heads = 2},
      DeltaTensors::kByKeyHead);
  ExpertsDescription experts = ReadExperts(fields, model,
                                           {.count = 512,
                                            .chosen = 10,
                                            .intermediate = 512,
                                            .count_key = "num_experts",
                                            .count_alias = "num_local_experts"});
  experts.router.normalized = fields.Boolean("norm_topk_prob", true);
  AddSharedExpert(fields, experts);
  const std::vector<bool> sparse = ReadSparseLayers(fields, model.layer_count());
  SetExperts(
      fields, "num_experts", experts,
      [&](int64_t layer) { return sparse[static_cast<size_t>(layer)]; }, model);
  return model;
}

ModelDescription DescribeQwen35(JsonFields& fields) {
  return ReadHybrid(
      fields,
      {.vocabulary = 248320, .hidden = 4096, .intermediate = 12288, .layers = 32, .kv_heads = 4},
      DeltaTensors::kApart);
}

ModelDescription DescribeQwen35Moe(JsonFields& fields) {
  ModelDescription model = ReadHybrid(fields,
                                      {.vocabulary = 248320,
                                       .hidden = 2048,
                                       .intermediate = 1,  // no layer is dense
                                       .layers = 40,
                                       .kv_heads = 2},
                                      DeltaTensors::kApart);
  ExpertsDescription experts = ReadExperts(fields, model,
                                           {.count = 256,
                                            .chosen = 8,
                                            .intermediate = 512,
                                            .count_key = "num_experts",
                                            .count_alias = "num_local_experts"});
  AddSharedExpert(fields, experts);
  fields.MustBe("norm_topk_prob", true, "the weights of the chosen experts are normalised");
  fields.MustBe("mlp_only_layers", nlohmann::json::array(), "every layer has experts");
  SetExperts(
      fields, "num_experts", experts, [](int64_t) { return true; }, model);
  return model;
}

const IgnoredTensors& LaterPredictors() {
  static const auto& ignored = *new IgnoredTensors{.what = "layers that predict further tokens",
                                                   .prefix = "mtp.",
                                                   .count_key = "mtp_num_hidden_layers"};
  return ignored;
}

const ModelFamilyRegistration kQwen3Next({"qwen3_next", "Qwen3NextForCausalLM", DescribeQwen3Next,
                                          LaterPredictors()});
const ModelFamilyRegistration kQwen35({"qwen3_5_text", "Qwen3_5ForCausalLM", DescribeQwen35,
                                       LaterPredictors()});
const ModelFamilyRegistration kQwen35Moe({"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM",
                                          DescribeQwen35Moe, LaterPredictors()});

}  // namespace
}  // namespace megatrain

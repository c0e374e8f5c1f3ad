// GLM 4.5 and 4.5 Air: a few dense layers, then experts beside one that all tokens go through.
// Routers take sigmoids, and a correction, which is not trained by gradients, changes their choice.
// GLM 2025.
#include "absl/strings/str_cat.h"
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ExpertsDescription ReadGlmExperts(JsonFields& fields, const ModelDescription& model) {
  ExpertsDescription experts = ReadExperts(fields, model,
                                           {.count = 128,
                                            .chosen = 8,
                                            .intermediate = 1408,
                                            .count_key = "n_routed_experts",
                                            .count_alias = "num_local_experts",
                                            .auxiliary_loss = false});
  ReadExpertGroups(fields, experts);
  experts.router.scores = RouterScores::kSigmoid;
  experts.router.normalized = fields.Boolean("norm_topk_prob", true);
  experts.router.scale = fields.Number("routed_scaling_factor", 1e-6, 1e6, 1.0);
  experts.router.correction = true;
  const int64_t shared = fields.Integer("n_shared_experts", 1, kExpertsMax, 1);
  experts.shared_intermediate = shared * experts.intermediate;
  if (experts.shared_intermediate > kIntermediateMax) {
    fields.Refuse("n_shared_experts",
                  absl::StrCat(shared, " of moe_intermediate_size = ", experts.intermediate,
                               " are more than ", kIntermediateMax, " together"));
  }
  return experts;
}

ModelDescription DescribeGlm4Moe(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 151552,
                                                     .hidden = 4096,
                                                     .intermediate = 10944,
                                                     .layers = 46,
                                                     .heads = 96,
                                                     .kv_heads = 8,
                                                     .max_positions = 131072,
                                                     .norm_epsilon = 1e-5});
  model.ropes = {ReadRope(fields, model, {.rotary_fraction = 0.5})};
  const bool bias = fields.Boolean("attention_bias", false);
  const bool norms = fields.Boolean("use_qk_norm", false);
  for (LayerDescription& layer : model.layers) {
    layer.attention.qkv_bias = bias;
    layer.attention.qk_norm = norms ? QkNorm::kHead : QkNorm::kNone;
  }
  const int64_t dense = fields.Integer("first_k_dense_replace", 0, model.layer_count(), 1);
  SetExperts(
      fields, "n_routed_experts", ReadGlmExperts(fields, model),
      [&](int64_t layer) { return layer >= dense; }, model);
  (void)fields.Integer("num_nextn_predict_layers", 0, kLayersMax, 1);
  (void)fields.Integer("num_mtp_layers", 0, kLayersMax, 1);
  return model;
}

const ModelFamilyRegistration kGlm4Moe({"glm4_moe",
                                        "Glm4MoeForCausalLM",
                                        DescribeGlm4Moe,
                                        {.what = "layers that predict further tokens",
                                         .later_layers_with = "eh_proj.weight",
                                         .count_key = "num_nextn_predict_layers"}});

}  // namespace
}  // namespace megatrain

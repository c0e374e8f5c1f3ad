// GLM 4.5 and 4.5 Air: a few dense layers, then experts beside one that all tokens go through.
// Routers take sigmoids, and a correction, which is not trained by gradients, changes their choice.
// GLM 2025.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

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
  SetSigmoidExperts(fields, {.count = 128, .chosen = 8, .intermediate = 1408}, model);
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

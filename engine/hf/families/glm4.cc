// GLM 4 of 0414, dense: norms before and after both halves of a layer, and half of each head
// rotated in neighbouring pairs. GLM 2024.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeGlm4(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 151552,
                                                     .hidden = 4096,
                                                     .intermediate = 13696,
                                                     .layers = 40,
                                                     .heads = 32,
                                                     .kv_heads = 2,
                                                     .head_dim = 128,
                                                     .max_positions = 131072,
                                                     .norm_epsilon = 1.5625e-7,
                                                     .padding_id = 151329});
  model.ropes = {ReadRope(fields, model, {.rotary_fraction = 0.5})};
  model.ropes[0].interleaved = true;
  const bool bias = fields.Boolean("attention_bias", true);
  for (LayerDescription& layer : model.layers) {
    layer.attention_norms = {"input_layernorm", "post_self_attn_layernorm"};
    layer.feed_forward_norms = {"post_attention_layernorm", "post_mlp_layernorm"};
    layer.attention.qkv_bias = bias;
    layer.feed_forward.fused_gate_up = true;
  }
  return model;
}

const ModelFamilyRegistration kGlm4({"glm4", "Glm4ForCausalLM", DescribeGlm4});

}  // namespace
}  // namespace megatrain

// Qwen 3, dense: Llama with a norm of each query and key head. Yang et al. 2025.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeQwen3(JsonFields& fields) {
  ModelDescription model =
      ReadUniformModel(fields, {.kv_heads = 32, .head_dim = 128, .max_positions = 32768});
  model.ropes = {ReadRope(fields, model)};
  const bool bias = fields.Boolean("attention_bias", false);
  for (LayerDescription& layer : model.layers) {
    layer.attention.qk_norm = QkNorm::kHead;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
  }
  ReadQwenWindows(fields, model);
  return model;
}

const ModelFamilyRegistration kQwen3({"qwen3", "Qwen3ForCausalLM", DescribeQwen3});

}  // namespace
}  // namespace megatrain

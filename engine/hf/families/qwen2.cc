// Qwen 2 and 2.5: Llama with biases of queries, keys and values, and windows in later layers where
// they are switched on. Yang et al. 2024.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeQwen2(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.kv_heads = 32, .max_positions = 32768});
  model.ropes = {ReadRope(fields, model)};
  for (LayerDescription& layer : model.layers) layer.attention.qkv_bias = true;
  ReadQwenWindows(fields, model);
  return model;
}

const ModelFamilyRegistration kQwen2({"qwen2", "Qwen2ForCausalLM", DescribeQwen2});

}  // namespace
}  // namespace megatrain

// Llama 1 to 3, and the many models that took over its shape. Touvron et al. 2023.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeLlama(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.max_positions = 2048});
  model.ropes = {ReadRope(fields, model)};
  const bool bias = fields.Boolean("attention_bias", false);
  for (LayerDescription& layer : model.layers) {
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
  }
  fields.MustBe("mlp_bias", false, "the MLP has no bias");
  fields.MustBe("rope_interleaved", false, "the halves of a head are rotated");
  fields.MustBe("sliding_window", nullptr, "this family has no windows");
  fields.Find("max_window_layers");
  fields.MustBe("activation", "swiglu", "hidden_act says it");
  fields.MustBe("parallel_attn", false, "attention is before the MLP");
  fields.MustBe("use_sliding_window", false, "this family has no windows");
  for (const bool slides :
       ReadSlidingLayers(fields, model.layer_count(), [](int64_t) { return false; })) {
    if (slides) fields.Refuse("layer_types", "sliding_attention: this family has no windows");
  }
  return model;
}

const ModelFamilyRegistration kLlama({"llama", "LlamaForCausalLM", DescribeLlama});

}  // namespace
}  // namespace megatrain

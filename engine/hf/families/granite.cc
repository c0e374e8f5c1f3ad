// Granite 3 and 4, dense: Llama with fixed factors of the embedding, the scores, each half of a
// layer and the logits. IBM 2024.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeGranite(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 32000,
                                                     .hidden = 4096,
                                                     .intermediate = 11008,
                                                     .layers = 32,
                                                     .heads = 32,
                                                     .max_positions = 2048});
  model.ropes = {ReadRope(fields, model)};
  const auto factor = [&](const char* key) { return fields.Number(key, 1e-6, 1e6, 1.0); };
  model.embedding_scale = factor("embedding_multiplier");
  model.logit_scale = 1.0 / factor("logits_scaling");
  const double score_scale = factor("attention_multiplier");  // 1, not 1 / sqrt(head_dim)
  const double residual_scale = factor("residual_multiplier");
  const bool bias = fields.Boolean("attention_bias", false);
  if (bias && residual_scale != 1.0) {
    fields.Refuse("attention_bias", "is not supported together with residual_multiplier");
  }
  fields.MustBe("mlp_bias", false, "the MLP has no bias");
  for (LayerDescription& layer : model.layers) {
    layer.attention.score_scale = score_scale;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    layer.residual_scale = residual_scale;
  }
  return model;
}

const ModelFamilyRegistration kGranite({"granite", "GraniteForCausalLM", DescribeGranite});

}  // namespace
}  // namespace megatrain

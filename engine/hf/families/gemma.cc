// Gemma 2 and 3: norms before and after both halves of a layer that multiply by 1 + weight, scaled
// embeddings, tanh GELU, windows in most layers. Gemma 2 caps scores and logits, Gemma 3 has norms
// of query and key heads and rotates its kinds of layers differently. Gemma Team 2024, 2025.
#include <cmath>

#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription ReadGemma(JsonFields& fields, ModelDefaults defaults) {
  defaults.hidden = 2304;
  defaults.intermediate = 9216;
  defaults.layers = 26;
  defaults.heads = 8;
  defaults.kv_heads = 4;
  defaults.head_dim = 256;
  defaults.tied_embeddings = true;
  defaults.padding_id = 0;
  defaults.activation_key = "hidden_activation";
  defaults.activation = "gelu_pytorch_tanh";
  ModelDescription model = ReadUniformModel(fields, defaults);
  fields.Find("hidden_act");  // transformers looks at hidden_activation alone
  fields.MustBe("use_bidirectional_attention", false, "tokens see earlier ones only");
  model.one_plus_norms = true;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden));
  model.rounds_embedding_scale = true;
  const double scalar = fields.Number("query_pre_attn_scalar", 1e-6, 1e6, 256.0);
  const bool bias = fields.Boolean("attention_bias", false);
  for (LayerDescription& layer : model.layers) {
    layer.attention_norms = {"input_layernorm", "post_attention_layernorm"};
    layer.feed_forward_norms = {"pre_feedforward_layernorm", "post_feedforward_layernorm"};
    layer.attention.score_scale = 1.0 / std::sqrt(scalar);
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
  }
  return model;
}

// Null is none, a missing key is `absent`.
double ReadSoftcap(JsonFields& fields, const char* key, double absent) {
  return fields.Number(key, 1e-6, 1e6, fields.Has(key) ? 0.0 : absent);
}

ModelDescription DescribeGemma2(JsonFields& fields) {
  ModelDescription model = ReadGemma(fields, {.vocabulary = 256000, .max_positions = 8192});
  model.ropes = {ReadRope(fields, model)};
  model.logit_softcap = ReadSoftcap(fields, "final_logit_softcapping", 30.0);
  const double softcap = ReadSoftcap(fields, "attn_logit_softcapping", 50.0);
  fields.Find("sliding_window_size");  // transformers looks at sliding_window alone
  for (LayerDescription& layer : model.layers) layer.attention.softcap = softcap;
  const int64_t window = ReadWindow(fields, 4096);
  const std::vector<bool> slides =
      ReadSlidingLayers(fields, model.layer_count(), [](int64_t layer) { return layer % 2 == 0; });
  SetSlidingLayers(fields, slides, window, /*rope=*/0, model);
  return model;
}

ModelDescription DescribeGemma3(JsonFields& fields) {
  ModelDescription model = ReadGemma(fields, {.vocabulary = 262208, .max_positions = 131072});
  model.ropes = {ReadRope(fields, model, {.theta = 1000000.0, .layer_type = "full_attention"}),
                 ReadRope(fields, model,
                          {.theta = 10000.0,
                           .theta_key = "rope_local_base_freq",
                           .layer_type = "sliding_attention"})};
  model.logit_softcap = ReadSoftcap(fields, "final_logit_softcapping", 0.0);
  fields.Find("attn_logit_softcapping");  // transformers does not apply it
  for (LayerDescription& layer : model.layers) layer.attention.qk_norm = QkNorm::kHead;
  const int64_t window = ReadWindow(fields, 4096);
  const int64_t pattern = fields.Integer("sliding_window_pattern", 1, kLayersMax, 6);
  (void)fields.Integer("_sliding_window_pattern", 1, kLayersMax, 6);
  const std::vector<bool> slides = ReadSlidingLayers(
      fields, model.layer_count(), [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  SetSlidingLayers(fields, slides, window, /*rope=*/1, model);
  return model;
}

const ModelFamilyRegistration kGemma2({"gemma2", "Gemma2ForCausalLM", DescribeGemma2});
const ModelFamilyRegistration kGemma3({"gemma3_text", "Gemma3ForCausalLM", DescribeGemma3});

}  // namespace
}  // namespace megatrain

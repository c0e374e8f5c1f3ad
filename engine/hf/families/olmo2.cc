// OLMo 2 and 3: no norms before attention and MLP but after them, and norms of all queries and all
// keys. OLMo 3 has windows in three of four layers, and scales RoPE in the others alone. OLMo 2025.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription ReadOlmo(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 50304,
                                                     .hidden = 4096,
                                                     .intermediate = 11008,
                                                     .layers = 32,
                                                     .heads = 32,
                                                     .max_positions = 2048,
                                                     .norm_epsilon = 1e-5,
                                                     .padding_id = 1});
  const bool bias = fields.Boolean("attention_bias", false);
  for (LayerDescription& layer : model.layers) {
    layer.attention_norms = {"", "post_attention_layernorm"};
    layer.feed_forward_norms = {"", "post_feedforward_layernorm"};
    layer.attention.qk_norm = QkNorm::kFull;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
  }
  return model;
}

ModelDescription DescribeOlmo2(JsonFields& fields) {
  ModelDescription model = ReadOlmo(fields);
  model.ropes = {ReadRope(fields, model)};
  return model;
}

ModelDescription DescribeOlmo3(JsonFields& fields) {
  ModelDescription model = ReadOlmo(fields);
  model.ropes = {ReadRope(fields, model, {.theta = 500000.0, .layer_type = "full_attention"}),
                 ReadRope(fields, model,
                          {.theta = 500000.0, .theta_key = "", .layer_type = "sliding_attention"})};
  const int64_t window = ReadWindow(fields, 4096);
  const std::vector<bool> slides = ReadSlidingLayers(
      fields, model.layer_count(), [](int64_t layer) { return (layer + 1) % 4 != 0; });
  SetSlidingLayers(fields, slides, window, /*rope=*/1, model);
  return model;
}

const ModelFamilyRegistration kOlmo2({"olmo2", "Olmo2ForCausalLM", DescribeOlmo2});
const ModelFamilyRegistration kOlmo3({"olmo3", "Olmo3ForCausalLM", DescribeOlmo3});

}  // namespace
}  // namespace megatrain

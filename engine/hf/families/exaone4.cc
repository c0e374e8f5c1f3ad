// EXAONE 4: OLMo 2's norms after attention and MLP, and norms of each head. A model with windows
// rotates in the layers that have one, and not in the others. LG AI Research 2025.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

// Returns n where every n-th layer sees all tokens. Like transformers it looks at the key only
// where layer_types is absent. Beside layer_types published models have "LLLG", which is no number.
int64_t ReadPattern(JsonFields& fields, int64_t window) {
  constexpr char kKey[] = "sliding_window_pattern";
  if (window == 0 || fields.Find("layer_types") != nullptr) {
    fields.Find(kKey);
    return 1;
  }
  if (fields.Has(kKey) && fields.Find(kKey) == nullptr) {
    fields.Refuse(kKey, "null says nothing where sliding_window is set; give layer_types");
  }
  return fields.Integer(kKey, 1, kLayersMax, 4);
}

ModelDescription DescribeExaone4(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 102400,
                                                     .hidden = 4096,
                                                     .intermediate = 16384,
                                                     .layers = 32,
                                                     .heads = 32,
                                                     .kv_heads = 32,
                                                     .max_positions = 2048,
                                                     .norm_epsilon = 1e-5});
  model.ropes = {ReadRope(fields, model)};
  const int64_t window = ReadWindow(fields, 4096);
  const int64_t pattern = ReadPattern(fields, window);
  const std::vector<bool> slides = ReadSlidingLayers(
      fields, model.layer_count(), [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  SetSlidingLayers(fields, slides, window, /*rope=*/0, model);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    LayerDescription& layer = model.layers[i];
    layer.attention_norms = {"", "post_attention_layernorm"};
    layer.feed_forward_norms = {"", "post_feedforward_layernorm"};
    layer.attention.qk_norm = QkNorm::kHead;
    if (window > 0 && !slides[i]) layer.attention.query_rope = layer.attention.key_rope = -1;
  }
  return model;
}

const ModelFamilyRegistration kExaone4({"exaone4", "Exaone4ForCausalLM", DescribeExaone4});

}  // namespace
}  // namespace megatrain

// SmolLM 3: Llama without rotation in every fourth layer. Bakouch et al. 2025.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

// A 1 is for a layer that rotates.
std::vector<bool> ReadRotatingLayers(JsonFields& fields, int64_t layers) {
  const int64_t interval = fields.Integer("no_rope_layer_interval", 1, kLayersMax, 4);
  std::vector<bool> rotates(static_cast<size_t>(layers));
  const nlohmann::json* const list = fields.Find("no_rope_layers");
  if (list != nullptr && (!list->is_array() || list->size() < rotates.size())) {
    fields.Refuse("no_rope_layers", absl::StrCat("must be a list of num_hidden_layers = ", layers,
                                                 " zeros and ones"));
    return rotates;
  }
  for (size_t i = 0; i < rotates.size(); ++i) {
    if (list == nullptr) {
      rotates[i] = (static_cast<int64_t>(i) + 1) % interval != 0;
      continue;
    }
    const nlohmann::json& value = (*list)[i];
    if (value != 0 && value != 1) fields.Refuse("no_rope_layers", "must hold zeros and ones");
    rotates[i] = value == 1;
  }
  return rotates;
}

ModelDescription DescribeSmolLm3(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 128256,
                                                     .hidden = 2048,
                                                     .intermediate = 11008,
                                                     .layers = 36,
                                                     .heads = 16,
                                                     .kv_heads = 4,
                                                     .max_positions = 32768,
                                                     .tied_embeddings = true,
                                                     .padding_id = 128004});
  model.ropes = {ReadRope(fields, model, {.theta = 2000000.0})};
  const bool bias = fields.Boolean("attention_bias", false);
  fields.MustBe("mlp_bias", false, "the MLP has no bias");
  fields.Find("max_window_layers");  // transformers does not look at it
  const std::vector<bool> rotates = ReadRotatingLayers(fields, model.layer_count());
  const bool windows = fields.Boolean("use_sliding_window", false);
  const int64_t given = ReadWindow(fields, 0);
  const int64_t window = windows ? given : 0;
  const std::vector<bool> slides = ReadSlidingLayers(
      fields, model.layer_count(),
      [&](int64_t layer) { return window > 0 && !rotates[static_cast<size_t>(layer)]; });
  SetSlidingLayers(fields, slides, window, /*rope=*/0, model);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    AttentionDescription& attention = model.layers[i].attention;
    attention.qkv_bias = attention.output_bias = bias;
    if (!rotates[i]) attention.query_rope = attention.key_rope = -1;
  }
  return model;
}

const ModelFamilyRegistration kSmolLm3({"smollm3", "SmolLM3ForCausalLM", DescribeSmolLm3});

}  // namespace
}  // namespace megatrain

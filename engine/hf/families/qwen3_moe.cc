// Qwen 3 with experts: the attention of the dense models, and in some layers, mostly in all, many
// small experts. Yang et al. 2025.
#include <vector>

#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeQwen3Moe(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 151936,
                                                     .hidden = 2048,
                                                     .intermediate = 6144,
                                                     .layers = 24,
                                                     .heads = 32,
                                                     .kv_heads = 4,
                                                     .max_positions = 32768});
  model.ropes = {ReadRope(fields, model)};
  const bool bias = fields.Boolean("attention_bias", false);
  // All layers slide or none: transformers looks neither at max_window_layers nor at layer_types.
  const bool windows = fields.Boolean("use_sliding_window", false);
  const int64_t window = ReadWindow(fields, 4096);
  fields.Find("max_window_layers");
  fields.Find("layer_types");
  for (LayerDescription& layer : model.layers) {
    layer.attention.qk_norm = QkNorm::kHead;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    layer.attention.window = windows ? window : 0;
  }
  ExpertsDescription experts =
      ReadExperts(fields, model, {.count = 128, .chosen = 8, .intermediate = 768});
  experts.router.normalized = fields.Boolean("norm_topk_prob", false);
  const std::vector<bool> sparse = ReadSparseLayers(fields, model.layer_count());
  SetExperts(
      fields, "num_experts", experts,
      [&](int64_t layer) { return sparse[static_cast<size_t>(layer)]; }, model);
  // Qwen 3 Coder's configuration says what the class does anyway.
  fields.MustBe("qkv_bias", false, "attention_bias says it");
  fields.MustBe("use_qk_norm", true, "each query and key head has a norm");
  fields.MustBe("shared_expert_intermediate_size", 0, "this family has no shared expert");
  return model;
}

const ModelFamilyRegistration kQwen3Moe({"qwen3_moe", "Qwen3MoeForCausalLM", DescribeQwen3Moe});

}  // namespace
}  // namespace megatrain

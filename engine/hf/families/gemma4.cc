// Gemma 4: Gemma 3 with norms that multiply by their weight alone, values that are normed too,
// wider heads in the layers without a window, where keys may be the values, a factor of each
// layer's result, and perhaps experts beside each dense unit. Gemma Team 2026.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

struct Heads {
  int64_t head_dim = 0, kv_heads = 0;
};

// Reads per_layer_config, in which transformers saves what differs from the keys beside it: an
// object for the number of each such layer. Layers that are not there have `usual`.
std::vector<Heads> ReadPerLayer(JsonFields& fields, const nlohmann::json& object,
                                const Heads& usual, int64_t layers) {
  constexpr char kKey[] = "per_layer_config";
  std::vector<Heads> heads(static_cast<size_t>(layers), usual);
  if (!object.is_object()) {
    fields.Refuse(kKey, absl::StrCat("must be an object, not ", DescribeJson(object)));
    return heads;
  }
  for (const auto& [name, settings] : object.items()) {
    int64_t layer = -1;
    if (!absl::SimpleAtoi(name, &layer) || layer < 0 || layer >= layers || !settings.is_object()) {
      fields.Refuse(kKey,
                    absl::StrCat("must have objects under layers' numbers from 0 to ", layers - 1,
                                 ", not ", DescribeJson(settings), " under \"", name, "\""));
      return heads;
    }
    JsonFields own(settings, fields.path(), absl::StrCat(kKey, ".", name, "."));
    heads[static_cast<size_t>(layer)] = {
        own.Integer("head_dim", 2, kHeadDimMax, usual.head_dim),
        own.Integer("num_key_value_heads", 1, kHeadsMax, usual.kv_heads)};
    own.RefuseUnread({});
    fields.Take(own.status());
  }
  return heads;
}

// Returns each layer's heads. Published models give those of layers without a window by keys of
// their own, which count where there is no per_layer_config.
std::vector<Heads> ReadHeads(JsonFields& fields, const AttentionDescription& usual,
                             const std::vector<bool>& slides, bool values_are_keys) {
  const Heads sliding = {usual.head_dim, usual.kv_heads};
  Heads full = {fields.Integer("global_head_dim", 2, kHeadDimMax, 512),
                fields.Integer("num_global_key_value_heads", 1, kHeadsMax, sliding.kv_heads)};
  if (!values_are_keys) full.kv_heads = sliding.kv_heads;
  std::vector<Heads> heads;
  for (const bool slide : slides) heads.push_back(slide ? sliding : full);
  if (const nlohmann::json* const object = fields.Find("per_layer_config")) {
    heads = ReadPerLayer(fields, *object, sliding, static_cast<int64_t>(slides.size()));
  }
  std::optional<int64_t> sizes[2];  // of the heads of layers without a window, and with one
  for (size_t i = 0; i < heads.size(); ++i) {
    const auto& [head_dim, kv_heads] = heads[i];
    const std::string of_layer = absl::StrCat(" of layer ", i);
    if (head_dim % 2 != 0) {
      fields.Refuse("global_head_dim", absl::StrCat(head_dim, of_layer, " must be even"));
    }
    if (usual.heads % kv_heads != 0) {
      fields.Refuse(
          "num_global_key_value_heads",
          absl::StrCat(kv_heads, of_layer, " does not divide num_attention_heads = ", usual.heads));
    }
    std::optional<int64_t>& size = sizes[slides[i]];
    if (!size.has_value()) size = head_dim;
    if (*size != head_dim) {
      fields.Refuse("per_layer_config",
                    absl::StrCat("head_dim = ", head_dim, of_layer, " differs from ", *size,
                                 " of another layer of its kind, with which it is rotated"));
    }
  }
  return heads;
}

// Returns 0 if no layer has a window.
int64_t SlidingHeadDim(const std::vector<Heads>& heads, const std::vector<bool>& slides) {
  for (size_t i = 0; i < heads.size(); ++i) {
    if (slides[i]) return heads[i].head_dim;
  }
  return 0;
}

// Layers that take keys and values from an earlier layer of their kind, and embeddings that each
// layer has for itself.
void CheckCrossLayers(JsonFields& fields, const std::vector<bool>& slides, int64_t intermediate) {
  const size_t layers = slides.size();
  const int64_t shared =
      fields.Integer("num_kv_shared_layers", 0, static_cast<int64_t>(layers) - 1, 0);
  const size_t own = layers - static_cast<size_t>(shared);  // layers before those that share
  for (size_t i = own; i < layers; ++i) {
    if (std::find(slides.begin(), slides.begin() + own, slides[i]) == slides.begin() + own) {
      fields.Refuse(
          "num_kv_shared_layers",
          absl::StrCat(shared, ": there is no layer before for the keys and values of layer ", i,
                       ", which is of another kind"));
    }
  }
  const bool wide = fields.Boolean("use_double_wide_mlp", false);  // of layers that share
  if (shared > 0 && wide && 2 * intermediate > kIntermediateMax) {
    fields.Refuse("intermediate_size",
                  absl::StrCat("twice ", intermediate, " (use_double_wide_mlp) is more than ",
                               kIntermediateMax));
  }
  if (shared > 0) {
    fields.Refuse("num_kv_shared_layers", absl::StrCat(shared, " is not supported, only 0 is"));
  }
  const int64_t width = fields.Integer("hidden_size_per_layer_input", 0, kHiddenMax, 256);
  (void)fields.Integer("vocab_size_per_layer_input", 1, kVocabularyMax, 262144);
  if (width > 0) {
    fields.Refuse("hidden_size_per_layer_input",
                  absl::StrCat(width, " (256 where it is not given) is not supported, only 0 is"));
  }
}

// Experts beside the dense unit of every layer, where the router sees the stream through a norm of
// its own.
void ReadMixture(JsonFields& fields, ModelDescription& model) {
  if (!fields.Boolean("enable_moe_block", false)) {
    // Without experts these keys are null.
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
      (void)fields.Integer(key, 1, kIntermediateMax, 1);
    }
    return;
  }
  ExpertsDescription experts = ReadExperts(fields, model,
                                           {.count_key = "num_experts",
                                            .count_alias = nullptr,
                                            .chosen_key = "top_k_experts",
                                            .auxiliary_loss = false});
  experts.tensors = ExpertTensors::kStacked;
  experts.name = "experts";
  experts.router.name = "router.proj";
  experts.router.input_scale = "router.scale";
  experts.router.expert_scales = "router.per_expert_scale";
  const JoinDescription join = {{"pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"},
                                "post_feedforward_layernorm_1"};
  SetExperts(
      fields, "num_experts", experts, [](int64_t) { return true; }, model, &join);
}

RopeConfig ReadFullRope(JsonFields& fields, const ModelDescription& model, int64_t head_dim) {
  RopeDefaults defaults;
  defaults.theta_key = "";
  defaults.layer_type = "full_attention";
  defaults.head_dim = head_dim;
  defaults.proportional = true;
  defaults.absent.type = RopeType::kProportional;
  defaults.absent.theta = 1000000.0;
  defaults.absent.turning_pairs = TurningPairs(0.25, head_dim);
  return ReadRope(fields, model, defaults);
}

ModelDescription DescribeGemma4(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 262144,
                                                     .hidden = 2304,
                                                     .intermediate = 9216,
                                                     .layers = 30,
                                                     .heads = 8,
                                                     .kv_heads = 4,
                                                     .head_dim = 256,
                                                     .max_positions = 131072,
                                                     .tied_embeddings = true,
                                                     .padding_id = 0,
                                                     .activation_key = "hidden_activation",
                                                     .activation = "gelu_pytorch_tanh"});
  fields.Find("hidden_act");  // transformers looks at hidden_activation alone
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden));
  model.rounds_embedding_scale = true;
  model.logit_softcap = fields.Number("final_logit_softcapping", 1e-6, 1e6, 0.0);
  // "vision" lets the tokens of an image see each other; text has none.
  const std::string both_ways = fields.String("use_bidirectional_attention", "vision");
  if (both_ways != "vision") {
    fields.Refuse("use_bidirectional_attention",
                  absl::StrCat("\"", both_ways, "\": tokens see earlier ones only"));
  }
  const int64_t window = ReadWindow(fields, 512);
  std::vector<bool> slides = ReadSlidingLayers(fields, model.layer_count(),
                                               [](int64_t layer) { return (layer + 1) % 6 != 0; });
  slides.back() = false;  // whatever the list says
  const bool values_are_keys = fields.Boolean("attention_k_eq_v", false);
  const bool bias = fields.Boolean("attention_bias", false);
  const std::vector<Heads> heads =
      ReadHeads(fields, model.layers[0].attention, slides, values_are_keys);
  fields.MustBe("rope_scaling", nullptr, "this family has rope_parameters");
  model.ropes = {ReadFullRope(fields, model, heads.back().head_dim),
                 ReadRope(fields, model,
                          {.theta_key = "",
                           .layer_type = "sliding_attention",
                           .head_dim = SlidingHeadDim(heads, slides)})};
  SetSlidingLayers(fields, slides, window, /*rope=*/1, model);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    LayerDescription& layer = model.layers[i];
    layer.attention_norms = {"input_layernorm", "post_attention_layernorm"};
    layer.feed_forward_norms = {"pre_feedforward_layernorm", "post_feedforward_layernorm"};
    layer.output_scale = true;
    AttentionDescription& attention = layer.attention;
    attention.head_dim = heads[i].head_dim;
    attention.kv_heads = heads[i].kv_heads;
    attention.score_scale = 1.0;
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNorm::kHead;
    attention.value_norm = true;
    attention.values_are_keys = values_are_keys && !slides[i];
  }
  CheckCrossLayers(fields, slides, model.layers[0].feed_forward.intermediate);
  ReadMixture(fields, model);
  return model;
}

const ModelFamilyRegistration kGemma4({"gemma4_text", "Gemma4ForCausalLM", DescribeGemma4});

}  // namespace
}  // namespace megatrain

// Gemma 4: Gemma 3 with norms that multiply by their weight alone, values that are normed too,
// wider heads in the layers without a window, where keys may be the values, a factor of each
// layer's result, and perhaps experts beside each dense unit. Gemma Team 2026.
#include <cmath>
#include <map>
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

// The rows of a table are read and written one by one.
constexpr int64_t kPerLayerVocabularyMax = 1 << 22;

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

// The last layers take keys and values from the last one before them of their kind.
void SetSharedKeys(JsonFields& fields, const std::vector<bool>& slides, ModelDescription& model) {
  constexpr char kKey[] = "num_kv_shared_layers";
  const int64_t layers = model.layer_count();
  const int64_t shared = fields.Integer(kKey, 0, layers - 1, 0);
  const bool wide = fields.Boolean("use_double_wide_mlp", false);
  const int64_t intermediate = model.layers[0].feed_forward.intermediate;
  if (shared > 0 && wide && 2 * intermediate > kIntermediateMax) {
    fields.Refuse("intermediate_size",
                  absl::StrCat("twice ", intermediate, " (use_double_wide_mlp) is more than ",
                               kIntermediateMax));
    return;
  }
  for (int64_t i = layers - shared; i < layers; ++i) {
    LayerDescription& layer = model.layers[static_cast<size_t>(i)];
    int64_t maker = layers - shared - 1;
    while (maker >= 0 && slides[static_cast<size_t>(maker)] != slides[static_cast<size_t>(i)]) {
      --maker;
    }
    const std::string kind = slides[static_cast<size_t>(i)] ? "with a window" : "without a window";
    if (maker < 0) {
      fields.Refuse(kKey, absl::StrCat(shared, ": layer ", i, " is one ", kind,
                                       ", and of those before layer ", layers - shared,
                                       " none is, from which it could take keys and values"));
      return;
    }
    AttentionDescription& source = model.layers[static_cast<size_t>(maker)].attention;
    if (source.kv_heads != layer.attention.kv_heads) {
      fields.Refuse(kKey, absl::StrCat("layer ", i, " has ", layer.attention.kv_heads,
                                       " heads of keys and values, and layer ", maker,
                                       ", from which it takes them, has ", source.kv_heads));
      return;
    }
    source.key_set = static_cast<int>(maker);  // numbered below
    layer.attention.key_set = static_cast<int>(maker);
    layer.attention.projects_keys = false;
    if (wide) layer.feed_forward.intermediate *= 2;
  }
  // Sets are counted in the order of the layers that make them.
  std::map<int, int> sets;
  for (LayerDescription& layer : model.layers) {
    int& set = layer.attention.key_set;
    if (set >= 0) set = sets.insert({set, static_cast<int>(sets.size())}).first->second;
  }
}

void SetPerLayerInputs(JsonFields& fields, ModelDescription& model) {
  const int64_t width = fields.Integer("hidden_size_per_layer_input", 0, kHiddenMax, 256);
  const int64_t vocabulary =
      fields.Integer("vocab_size_per_layer_input", 1, kPerLayerVocabularyMax, 262144);
  if (width == 0) return;
  if (vocabulary < model.vocabulary) {
    fields.Refuse("vocab_size_per_layer_input",
                  absl::StrCat(vocabulary, " is less than vocab_size = ", model.vocabulary,
                               ": every token needs a row of each layer's table"));
  }
  // The tables of all layers together are a matrix of at most this width.
  if (width * model.layer_count() > kHiddenMax) {
    fields.Refuse("hidden_size_per_layer_input",
                  absl::StrCat(width, " for each of ", model.layer_count(), " layers is more than ",
                               kHiddenMax, " together"));
  }
  for (LayerDescription& layer : model.layers) {
    layer.per_layer_input = {width, vocabulary, layer.feed_forward.activation};
    if (layer.experts.count > 0) {
      fields.Refuse("hidden_size_per_layer_input",
                    absl::StrCat(width,
                                 " is not supported beside experts (enable_moe_block); "
                                 "give 0, which published models with experts have"));
      return;
    }
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
  ReadMixture(fields, model);
  SetSharedKeys(fields, slides, model);
  SetPerLayerInputs(fields, model);
  return model;
}

const ModelFamilyRegistration kGemma4(
    {"gemma4_text",
     "Gemma4ForCausalLM",
     DescribeGemma4,
     {.what = "keys and values that layers take from earlier ones", .unused_keys = true}});

}  // namespace
}  // namespace megatrain

#include "engine/hf/config/config_readers.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"

namespace megatrain {
namespace {

using nlohmann::json;

int64_t ReadSize(JsonFields& fields, const char* key, int64_t most, int64_t absent) {
  return absent > 0 ? fields.Integer(key, 1, most, absent) : fields.RequiredInteger(key, 1, most);
}

// A missing key has the class's default, null is one head for each query head.
int64_t ReadKvHeads(JsonFields& fields, int64_t heads, int64_t absent) {
  const bool missing = !fields.Has("num_key_value_heads") && absent > 0;
  const int64_t kv_heads =
      fields.Integer("num_key_value_heads", 1, kHeadsMax, missing ? absent : heads);
  if (heads % kv_heads != 0) {
    fields.Refuse("num_key_value_heads",
                  absl::StrCat(kv_heads, " does not divide num_attention_heads = ", heads));
  }
  return kv_heads;
}

// A missing key has the class's default, null is an equal share of hidden_size.
int64_t ReadHeadDim(JsonFields& fields, int64_t hidden, int64_t heads, int64_t absent) {
  int64_t head_dim = absent;
  if (fields.Find("head_dim") != nullptr) {
    head_dim = fields.Integer("head_dim", 2, kHeadDimMax, 2);
  } else if (absent == 0 || fields.Has("head_dim")) {
    if (hidden % heads != 0) {
      fields.Refuse("hidden_size", absl::StrCat(hidden,
                                                " is no multiple of "
                                                "num_attention_heads = ",
                                                heads));
      return 2;
    }
    head_dim = hidden / heads;
  }
  if (head_dim % 2 != 0 || head_dim > kHeadDimMax) {
    fields.Refuse("head_dim", absl::StrCat(head_dim,
                                           " (hidden_size / num_attention_heads where it is not "
                                           "given) must be even and at most ",
                                           kHeadDimMax));
  }
  return head_dim;
}

GluActivation ReadActivation(JsonFields& fields, const ModelDefaults& defaults) {
  const std::string name = fields.String(defaults.activation_key, defaults.activation);
  if (name == "silu" || name == "swish") return GluActivation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return GluActivation::kGeluTanh;
  fields.Refuse(defaults.activation_key,
                absl::StrCat("\"", name, "\" is not supported; silu and gelu_pytorch_tanh are"));
  return GluActivation::kSilu;
}

// torch.nn.Embedding counts a negative index from the end.
int64_t ReadPaddingId(JsonFields& fields, int64_t vocabulary, int64_t absent) {
  const bool given = fields.Find("pad_token_id") != nullptr;
  if (!given && (absent < 0 || fields.Has("pad_token_id"))) return -1;  // null is none
  const int64_t id =
      given ? fields.Integer("pad_token_id", -vocabulary, vocabulary - 1, -1) : absent;
  if (id >= vocabulary) {
    fields.Refuse("pad_token_id",
                  absl::StrCat("is missing, and the family's own, ", id,
                               ", is beyond vocab_size = ", vocabulary, "; give one, or null"));
  }
  return id < 0 ? id + vocabulary : id;
}

}  // namespace

ModelDescription ReadUniformModel(JsonFields& fields, const ModelDefaults& defaults) {
  UniformShape shape;
  shape.vocabulary = ReadSize(fields, "vocab_size", kVocabularyMax, defaults.vocabulary);
  shape.hidden = ReadSize(fields, "hidden_size", kHiddenMax, defaults.hidden);
  shape.intermediate =
      ReadSize(fields, "intermediate_size", kIntermediateMax, defaults.intermediate);
  shape.layers = ReadSize(fields, "num_hidden_layers", kLayersMax, defaults.layers);
  shape.heads = ReadSize(fields, "num_attention_heads", kHeadsMax, defaults.heads);
  shape.kv_heads = ReadKvHeads(fields, shape.heads, defaults.kv_heads);
  shape.head_dim = ReadHeadDim(fields, shape.hidden, shape.heads, defaults.head_dim);
  shape.max_positions =
      fields.Integer("max_position_embeddings", 1, kPositionsMax, defaults.max_positions);
  ModelDescription model = UniformModel(shape);
  model.norm_epsilon = fields.Number("rms_norm_eps", 0.0, 1.0, defaults.norm_epsilon);
  model.tied_embeddings = fields.Boolean("tie_word_embeddings", defaults.tied_embeddings);
  model.padding_id = ReadPaddingId(fields, shape.vocabulary, defaults.padding_id);
  const GluActivation activation = ReadActivation(fields, defaults);
  for (LayerDescription& layer : model.layers) layer.feed_forward.activation = activation;
  return model;
}

std::vector<bool> ReadLayersOfType(JsonFields& fields, int64_t layers, const char* type,
                                   absl::FunctionRef<bool(int64_t layer)> is_of_type) {
  std::vector<bool> of_type(static_cast<size_t>(layers));
  const json* const types = fields.Find("layer_types");
  if (types == nullptr) {
    for (int64_t i = 0; i < layers; ++i) of_type[static_cast<size_t>(i)] = is_of_type(i);
    return of_type;
  }
  if (!types->is_array() || static_cast<int64_t>(types->size()) != layers) {
    fields.Refuse("layer_types",
                  absl::StrCat("must be a list of num_hidden_layers = ", layers, " names"));
    return of_type;
  }
  for (size_t i = 0; i < types->size(); ++i) {
    const json& name = (*types)[i];
    of_type[i] = name == type;
    if (!of_type[i] && name != "full_attention") {
      fields.Refuse(
          "layer_types",
          absl::StrCat(DescribeJson(name), " is not supported; full_attention and ", type, " are"));
    }
  }
  return of_type;
}

std::vector<bool> ReadSlidingLayers(JsonFields& fields, int64_t layers,
                                    absl::FunctionRef<bool(int64_t layer)> slides) {
  return ReadLayersOfType(fields, layers, "sliding_attention", slides);
}

int64_t ReadWindow(JsonFields& fields, int64_t absent) {
  return fields.Integer("sliding_window", 1, kPositionsMax,
                        fields.Has("sliding_window") ? 0 : absent);
}

void SetSlidingLayers(JsonFields& fields, const std::vector<bool>& slides, int64_t window, int rope,
                      ModelDescription& model) {
  for (size_t i = 0; i < slides.size(); ++i) {
    if (!slides[i]) continue;
    if (window == 0) {
      fields.Refuse("layer_types",
                    "has sliding_attention, but use_sliding_window or sliding_window is off");
    }
    AttentionDescription& attention = model.layers[i].attention;
    attention.window = window;
    attention.query_rope = attention.key_rope = rope;
  }
}

void ReadQwenWindows(JsonFields& fields, ModelDescription& model) {
  const bool used = fields.Boolean("use_sliding_window", false);
  const int64_t given = ReadWindow(fields, 4096);
  const int64_t window = used ? given : 0;
  const int64_t first = fields.Integer("max_window_layers", 0, kLayersMax, 28);
  const std::vector<bool> slides = ReadSlidingLayers(
      fields, model.layer_count(), [&](int64_t layer) { return window > 0 && layer >= first; });
  SetSlidingLayers(fields, slides, window, /*rope=*/0, model);
}

}  // namespace megatrain

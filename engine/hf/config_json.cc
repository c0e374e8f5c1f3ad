#include "engine/hf/config_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/hf/json_fields.h"

namespace megatrain {
namespace {

using nlohmann::json;

// Limits keep every product of sizes, 12 bytes a parameter included, far below 2^63:
//   a layer < 4 attention matrices * 2^20 * 2^22 + 3 MLP matrices * 2^20 * 2^24 < 2^47 parameters,
//   2^12 layers of them, 16 bytes each: < 2^63.
constexpr int64_t kVocabularyMax = int64_t{1} << 31;
constexpr int64_t kHiddenMax = int64_t{1} << 20;
constexpr int64_t kIntermediateMax = int64_t{1} << 24;
constexpr int64_t kLayersMax = int64_t{1} << 12;
constexpr int64_t kHeadsMax = int64_t{1} << 12;
constexpr int64_t kHeadDimMax = int64_t{1} << 10;
constexpr int64_t kPositionsMax = int64_t{1} << 30;

// Keys that say nothing about the mathematics of training: bookkeeping, generation, what a
// forward pass returns, heads for other tasks.
constexpr const char* kIgnoredKeys[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "is_decoder",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "max_sequence_length",

    "min_length",
    "model_max_length",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "seq_length",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_last_hidden_states",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

RopeType ReadRopeType(JsonFields& fields) {
  const std::string legacy = fields.String("type", "default");
  const std::string type = fields.String("rope_type", legacy);
  if (type == "linear") return RopeType::kLinear;
  if (type == "llama3") return RopeType::kLlama3;
  if (type == "yarn") return RopeType::kYarn;
  if (type != "default") {
    fields.Refuse("rope_type", absl::StrCat("\"", type,
                                            "\" is not supported; default, linear, "
                                            "llama3 and yarn are"));
  }
  return RopeType::kDefault;
}

void ReadLlama3(JsonFields& fields, RopeConfig& rope) {
  const bool used = rope.type == RopeType::kLlama3;
  for (const char* key : {"low_freq_factor", "high_freq_factor"}) {
    if (used && fields.Find(key) == nullptr) fields.Refuse(key, "is missing");
  }
  rope.low_frequency_factor = fields.Number("low_freq_factor", 1e-6, 1e6, 1.0);
  rope.high_frequency_factor = fields.Number("high_freq_factor", 1e-6, 1e6, 4.0);
  if (used && rope.high_frequency_factor <= rope.low_frequency_factor) {
    fields.Refuse("high_freq_factor", "must be greater than low_freq_factor");
  }
}

void ReadYarn(JsonFields& fields, RopeConfig& rope) {
  rope.beta_fast = fields.Number("beta_fast", 1e-6, 1e6, 32.0);
  rope.beta_slow = fields.Number("beta_slow", 1e-6, 1e6, 1.0);
  rope.truncate = fields.Boolean("truncate", true);
  rope.attention_factor = fields.Number("attention_factor", 1e-6, 1e6, 0.0);
  const double mscale = fields.Number("mscale", 0.0, 1e6, 0.0);
  const double mscale_all_dim = fields.Number("mscale_all_dim", 0.0, 1e6, 0.0);
  if (rope.type != RopeType::kYarn) return;
  if (rope.theta <= 1.0) fields.Refuse("rope_theta", "must be greater than 1");
  const auto scale = [&](double m) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0;
  };
  if (rope.attention_factor == 0.0) {
    rope.attention_factor =
        mscale > 0.0 && mscale_all_dim > 0.0 ? scale(mscale) / scale(mscale_all_dim) : scale(1.0);
  }
}

// RoPE's settings: the object `rope_scaling` or `rope_parameters`, with what stands beside it.
absl::Status ReadRope(JsonFields& root, const std::string& path, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  const json* scaling = root.Find("rope_scaling");
  const json* parameters = root.Find("rope_parameters");
  const double theta = root.Number("rope_theta", 1.0, 1e15, 10000.0);
  const int64_t original = root.Integer("original_max_position_embeddings", 1, kPositionsMax, 0);
  root.MustBe("partial_rotary_factor", 1.0, "every dimension of a head is rotated");
  rope.theta = theta;
  MT_RETURN_IF_ERROR(root.status());
  if (scaling && scaling->empty()) scaling = nullptr;
  if (parameters && parameters->empty()) parameters = nullptr;
  if (scaling && parameters && *scaling != *parameters) {
    root.Refuse("rope_scaling", "differs from rope_parameters; keep one of them");
    return root.status();
  }
  const json* const object = scaling ? scaling : parameters;
  if (object == nullptr) return absl::OkStatus();
  const std::string name = scaling ? "rope_scaling" : "rope_parameters";
  if (!object->is_object()) {
    root.Refuse(name, absl::StrCat("must be an object, not ", DescribeJson(*object)));
    return root.status();
  }
  JsonFields fields(*object, path, name + ".");
  rope.type = ReadRopeType(fields);
  rope.theta = fields.Number("rope_theta", 1.0, 1e15, theta);
  fields.MustBe("partial_rotary_factor", 1.0, "every dimension of a head is rotated");
  fields.Find("finetuned");  // bookkeeping
  if (rope.type != RopeType::kDefault && fields.Find("factor") == nullptr) {
    fields.Refuse("factor", "is missing");
  }
  rope.factor = fields.Number("factor", 1.0, 1e6, 1.0);
  const int64_t own_original =
      fields.Integer("original_max_position_embeddings", 1, kPositionsMax, 0);
  // transformers lets the value outside of the object win.
  rope.original_positions = original > 0       ? original
                            : own_original > 0 ? own_original
                                               : config.max_positions;
  ReadLlama3(fields, rope);
  ReadYarn(fields, rope);
  fields.RefuseUnread({});
  return fields.status();
}

// "full_attention" for every layer; without the list, Qwen's window settings decide.
void CheckAttentionWindow(JsonFields& fields, const ModelConfig& config) {
  const bool use_window = fields.Boolean("use_sliding_window", false);
  const int64_t window = fields.Integer("sliding_window", 1, kPositionsMax, 0);
  const int64_t first = fields.Integer("max_window_layers", 0, kLayersMax, 28);
  const json* const types = fields.Find("layer_types");
  if (types == nullptr) {
    const bool qwen = config.family != ModelFamily::kLlama;
    if (qwen && use_window && window > 0 && first < config.layers) {
      fields.Refuse("use_sliding_window", "sliding-window attention is not supported");
    }
    if (!qwen && window > 0) {
      fields.Refuse("sliding_window", "sliding-window attention is not supported");
    }
    return;
  }
  if (!types->is_array() || static_cast<int64_t>(types->size()) != config.layers) {
    fields.Refuse("layer_types",
                  absl::StrCat("must be a list of num_hidden_layers = ", config.layers, " names"));
    return;
  }
  for (const json& type : *types) {
    if (type != "full_attention") {
      fields.Refuse("layer_types", absl::StrCat(DescribeJson(type),
                                                " is not supported; only "
                                                "full_attention is"));
    }
  }
}

// Checks what the tokenizer reads (tokenizer_config.cc).
void CheckTokenIds(JsonFields& fields) {
  (void)fields.Integer("bos_token_id", -1, kVocabularyMax - 1, -1);
  const json* const eos = fields.Find("eos_token_id");
  if (eos == nullptr) return;
  const json list = eos->is_array() ? *eos : json::array({*eos});
  for (const json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < -1 || id.get<int64_t>() >= kVocabularyMax) {
      fields.Refuse("eos_token_id",
                    absl::StrCat("must be a token id or a list of them, not ", DescribeJson(id)));
      return;
    }
  }
}

void CheckArchitectures(JsonFields& fields) {
  const json* const architectures = fields.Find("architectures");
  if (architectures == nullptr) return;
  if (!architectures->is_array()) {
    fields.Refuse("architectures", "must be a list of names");
    return;
  }
  for (const json& name : *architectures) {
    if (!name.is_string() || !absl::EndsWithIgnoreCase(name.get<std::string>(), "ForCausalLM")) {
      fields.Refuse("architectures",
                    absl::StrCat(DescribeJson(name), " is not supported; only ...ForCausalLM is"));
    }
  }
}

// Refuses what the engine does not compute, unless the value switches it off.
void CheckUnsupported(JsonFields& fields, ModelFamily family) {
  const std::string act = fields.String("hidden_act", "silu");
  if (act != "silu" && act != "swish") {
    fields.Refuse("hidden_act", absl::StrCat("\"", act, "\" is not supported; only silu is"));
  }
  if (family != ModelFamily::kQwen2) {
    fields.MustBe("attention_bias", false, "the attention projections have no bias");
  }
  if (family == ModelFamily::kLlama) {
    fields.MustBe("mlp_bias", false, "the MLP has no bias");
    fields.MustBe("rope_interleaved", false, "the halves of a head are rotated");
  }
  fields.MustBe("attention_dropout", 0.0, "training has no dropout; set it to 0");
  fields.MustBe("pretraining_tp", 1, "projections are not computed in slices; set it to 1");
  fields.MustBe("use_mrope", false, "multimodal positions are not supported");
  fields.MustBe("is_encoder_decoder", false, "only decoders are supported");
  fields.MustBe("add_cross_attention", false, "only decoders are supported");
  fields.MustBe("cross_attention_hidden_size", nullptr, "only decoders are supported");
  fields.MustBe("tie_encoder_decoder", false, "only decoders are supported");
  fields.MustBe("pruned_heads", json::object(), "every head is computed");
  fields.MustBe("per_layer_config", json::object(), "layers are alike");
  fields.MustBe("quantization_config", nullptr, "quantised weights cannot be trained");
  fields.MustBe("auto_map", nullptr, "the directory's own code is not run");
}

absl::StatusOr<ModelFamily> ReadFamily(JsonFields& fields, const std::string& path) {
  const std::string type = fields.String("model_type", "");
  MT_RETURN_IF_ERROR(fields.status());
  constexpr ModelFamily kFamilies[] = {ModelFamily::kLlama, ModelFamily::kQwen2,
                                       ModelFamily::kQwen3};
  std::vector<std::string> names;
  for (const ModelFamily family : kFamilies) {
    names.push_back(ModelFamilyName(family));
    if (names.back() == type) return family;
  }
  if (type.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": model_type: is missing"));
  }
  return absl::UnimplementedError(absl::StrCat(path, ": model_type: \"", type,
                                               "\" is not supported; supported are ",
                                               absl::StrJoin(names, ", ")));
}

void ReadShape(JsonFields& fields, ModelConfig& config) {
  const bool llama = config.family == ModelFamily::kLlama;
  config.vocabulary = fields.RequiredInteger("vocab_size", 1, kVocabularyMax);
  config.hidden = fields.RequiredInteger("hidden_size", 1, kHiddenMax);
  config.intermediate = fields.RequiredInteger("intermediate_size", 1, kIntermediateMax);
  config.layers = fields.RequiredInteger("num_hidden_layers", 1, kLayersMax);
  config.heads = fields.RequiredInteger("num_attention_heads", 1, kHeadsMax);
  // Absent, it is transformers' default: 32 in Qwen's classes. Null is one head for each query
  // head.
  const bool kv_default = !llama && !fields.Has("num_key_value_heads");
  config.kv_heads =
      fields.Integer("num_key_value_heads", 1, kHeadsMax, kv_default ? 32 : config.heads);
  config.max_positions =
      fields.Integer("max_position_embeddings", 1, kPositionsMax, llama ? 2048 : 32768);
  if (fields.Find("head_dim") != nullptr) {
    config.head_dim = fields.Integer("head_dim", 2, kHeadDimMax, 2);
  } else if (config.family == ModelFamily::kQwen3) {
    config.head_dim = 128;  // transformers' default
  } else if (config.hidden % config.heads == 0) {
    config.head_dim = config.hidden / config.heads;
  } else {
    fields.Refuse("hidden_size", absl::StrCat(config.hidden,
                                              " is no multiple of "
                                              "num_attention_heads = ",
                                              config.heads));
    return;
  }
  if (config.head_dim % 2 != 0 || config.head_dim > kHeadDimMax) {
    fields.Refuse("head_dim", absl::StrCat(config.head_dim,
                                           " (hidden_size / num_attention_heads where it is not "
                                           "given) must be even and at most ",
                                           kHeadDimMax));
  }
  if (config.heads % config.kv_heads != 0) {
    fields.Refuse(
        "num_key_value_heads",
        absl::StrCat(config.kv_heads, " does not divide num_attention_heads = ", config.heads));
  }
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, const std::string& path) {
  MT_ASSIGN_OR_RETURN(const json root, ParseJson(text, path));
  if (!root.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": must be an object, not ", DescribeJson(root)));
  }
  JsonFields fields(root, path);
  ModelConfig config;
  MT_ASSIGN_OR_RETURN(config.family, ReadFamily(fields, path));
  config.qkv_bias = config.family == ModelFamily::kQwen2;
  config.qk_norm = config.family == ModelFamily::kQwen3;
  ReadShape(fields, config);
  config.norm_epsilon = fields.Number("rms_norm_eps", 0.0, 1.0, 1e-6);
  config.initializer_range = fields.Number("initializer_range", 0.0, 1e3, 0.02);
  config.tied_embeddings = fields.Boolean("tie_word_embeddings", false);
  CheckUnsupported(fields, config.family);
  CheckArchitectures(fields);
  CheckAttentionWindow(fields, config);
  CheckTokenIds(fields);
  MT_RETURN_IF_ERROR(fields.status());
  MT_RETURN_IF_ERROR(ReadRope(fields, path, config));
  fields.RefuseUnread(std::set<std::string>(std::begin(kIgnoredKeys), std::end(kIgnoredKeys)));
  MT_RETURN_IF_ERROR(fields.status());
  return config;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory, FileSystem* files) {
  const std::string path = JoinPath(directory, kConfigFileName);
  const absl::StatusOr<FileInfo> info = files->Examine(directory);
  if (absl::IsNotFound(info.status()) || (info.ok() && !info->is_directory)) {
    return absl::NotFoundError(absl::StrCat(directory,
                                            info.ok()
                                                ? " is not a directory: give the one that holds "
                                                : ": there is no such directory to hold ",
                                            kConfigFileName));
  }
  if (!info.ok()) return info.status();
  MT_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, path, kConfigBytesMax));
  return ParseModelConfig(text, path);
}

absl::StatusOr<std::string> RewriteConfigDType(std::string_view text, DType weight_dtype,
                                               const std::string& path) {
  MT_ASSIGN_OR_RETURN(nlohmann::ordered_json root, ParseOrderedJson(text, path));
  if (!root.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not an object"));
  }
  const char* const name = weight_dtype == DType::kBF16 ? "bfloat16" : "float32";
  const bool has_dtype = root.contains("dtype");
  if (has_dtype) root["dtype"] = name;
  if (!has_dtype || root.contains("torch_dtype")) root["torch_dtype"] = name;
  return root.dump(2) + "\n";
}

}  // namespace megatrain

#include "engine/hf/config_json.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/hf/carried_tensors.h"
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/json_fields.h"
#include "engine/hf/config/model_family.h"
#include "engine/hf/config/wrapper_family.h"
#include "engine/hf/experts/expert_names.h"
#include "engine/hf/hf_format.h"
#include "engine/model/model_check.h"

namespace megatrain {
namespace {

using nlohmann::json;

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
    "cache_implementation",
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
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "max_sequence_length",
    "min_length",
    "model_max_length",
    "model_name",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "prefix",
    "pretraining_tp",
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
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

// Checks what the tokenizer reads (tokenizer_config.cc).
void CheckTokenIds(JsonFields& fields) {
  (void)fields.Integer("bos_token_id", -1, kVocabularyMax - 1, -1);
  const json* const eos = fields.Find("eos_token_id");
  if (eos == nullptr) return;
  const json list = eos->is_array() ? *eos : json::array({*eos});
  for (const json& id : list) {
    const bool is_id = id.is_number_unsigned() ? id.get<uint64_t>() < uint64_t{kVocabularyMax}
                                               : id.is_number_integer() && id.get<int64_t>() == -1;
    if (!is_id) {
      fields.Refuse("eos_token_id",
                    absl::StrCat("must be a token id or a list of them, not ", DescribeJson(id)));
      return;
    }
  }
}

// `kind`: how the names of classes end.
void CheckArchitectures(JsonFields& fields, const char* kind) {
  const json* const architectures = fields.Find("architectures");
  if (architectures == nullptr) return;
  if (!architectures->is_array()) {
    fields.Refuse("architectures", "must be a list of names");
    return;
  }
  for (const json& name : *architectures) {
    if (!name.is_string() || !absl::EndsWithIgnoreCase(name.get<std::string>(), kind)) {
      fields.Refuse("architectures",
                    absl::StrCat(DescribeJson(name), " is not supported; only ...", kind, " is"));
    }
  }
}

// The directory's own code is not run. A copy of transformers' class, from before it was there, is
// passed over as transformers does without trust_remote_code.
void CheckAutoMap(JsonFields& fields, const std::string& architecture) {
  const json* const map = fields.Find("auto_map");
  if (map == nullptr) return;
  const json* const name = map->is_object() && map->contains("AutoModelForCausalLM")
                               ? &(*map)["AutoModelForCausalLM"]
                               : nullptr;
  const bool copy = name != nullptr && name->is_string() &&
                    absl::EndsWith(name->get<std::string>(), "." + architecture);
  if (!copy) {
    fields.Refuse("auto_map", absl::StrCat("the directory's own code is not run; only a class ",
                                           architecture, " is known to compute the same"));
  }
}

// The one quantisation that is read is that of experts in MXFP4. What it left out has weights of
// ordinary types.
void CheckQuantization(JsonFields& fields, const ModelDescription& model) {
  constexpr char kKey[] = "quantization_config";
  const json* const config = fields.Find(kKey);
  if (config == nullptr) return;
  if (!config->is_object()) return fields.Refuse(kKey, "must be an object");
  JsonFields settings(*config, fields.path(), absl::StrCat(kKey, "."));
  const std::string method = settings.String("quant_method", "");
  const bool transposed =
      std::any_of(model.layers.begin(), model.layers.end(),
                  [](const LayerDescription& layer) { return layer.experts.transposed(); });
  if (method != "mxfp4" || !transposed) {
    settings.Refuse("quant_method",
                    absl::StrCat("\"", method,
                                 "\" weights of this family cannot be trained; give a directory of "
                                 "its BF16 or FP32 weights, for instance one that transformers "
                                 "saved after it dequantised them"));
  }
  settings.RefuseUnread({"modules_to_not_convert", "dequantize"});
  fields.Take(settings.status());
}

// Refuses what the engine does not compute, unless the value switches it off.
void CheckUnsupported(JsonFields& fields, const std::string& architecture,
                      const ModelDescription& model) {
  fields.MustBe("attention_dropout", 0.0, "training has no dropout; set it to 0");
  fields.MustBe("use_mrope", false, "multimodal positions are not supported");
  fields.MustBe("is_encoder_decoder", false, "only decoders are supported");
  fields.MustBe("add_cross_attention", false, "only decoders are supported");
  fields.MustBe("cross_attention_hidden_size", nullptr, "only decoders are supported");
  fields.MustBe("tie_encoder_decoder", false, "only decoders are supported");
  fields.MustBe("pruned_heads", json::object(), "every head is computed");
  if (!fields.IsRead("per_layer_config")) {
    fields.MustBe("per_layer_config", json::object(), "layers are alike");
  }
  CheckQuantization(fields, model);
  CheckAutoMap(fields, architecture);
}

void RefuseUnread(JsonFields& fields) {
  fields.RefuseUnread(std::set<std::string>(std::begin(kIgnoredKeys), std::end(kIgnoredKeys)));
}

ModelDescription ReadTextModel(JsonFields& fields, const ModelFamily& family) {
  ModelDescription model = family.describe(fields);
  model.family = family.model_type;
  model.initializer_range = fields.Number("initializer_range", 0.0, 1e3, 0.02);
  CheckUnsupported(fields, family.architecture, model);
  CheckArchitectures(fields, "ForCausalLM");
  CheckTokenIds(fields);
  RefuseUnread(fields);
  return model;
}

// Returns the family of the text model in a wrapper, null after an error.
const ModelFamily* ReadTextFamily(JsonFields& text, const WrapperFamily& wrapper) {
  const std::string type = text.String("model_type", wrapper.text_families[0]);
  const ModelFamily* const family = FindModelFamily(type);
  if (family != nullptr && absl::c_linear_search(wrapper.text_families, type)) return family;
  text.Refuse("model_type",
              absl::StrCat("\"", type, "\" is not supported within ", wrapper.model_type,
                           "; supported are ", absl::StrJoin(wrapper.text_families, ", ")));
  return nullptr;
}

ModelDescription ReadWrapper(JsonFields& fields, const WrapperFamily& wrapper) {
  const json* const text_config = fields.Find("text_config");
  if (text_config == nullptr || !text_config->is_object()) {
    fields.Refuse("text_config", text_config == nullptr ? "is missing"
                                                        : absl::StrCat("must be an object, not ",
                                                                       DescribeJson(*text_config)));
    return ModelDescription();
  }
  json own = *text_config;
  for (const std::string& key : wrapper.unread_text_keys) own.erase(key);
  own["tie_word_embeddings"] = fields.Boolean("tie_word_embeddings", wrapper.tied_embeddings);
  JsonFields text(own, fields.path(), "text_config.");
  ModelDescription model;
  if (const ModelFamily* const family = ReadTextFamily(text, wrapper)) {
    model = ReadTextModel(text, *family);
  }
  fields.Take(text.status());
  for (const std::string& key : wrapper.own_keys) fields.Find(key);
  fields.MustBe("language_model_only", false, "the directory is one of the whole model");
  fields.Find("pad_token_id");  // text_config's counts
  CheckUnsupported(fields, wrapper.architecture, model);
  CheckArchitectures(fields, "ForConditionalGeneration");
  CheckTokenIds(fields);
  RefuseUnread(fields);
  model.wrapper = DescribeWrapper(wrapper, wrapper.names[0]);
  return model;
}

// Returns the first directory with all files of its weights, `directory` if there is none.
std::string DirectoryOfNames(FileSystem* files, const std::string& directory,
                             const std::vector<std::string>& same_names) {
  if (CheckHfWeightFilesExist(files, directory).ok()) return directory;
  for (const std::string& other : same_names) {
    if (CheckHfWeightFilesExist(files, other).ok()) return other;
  }
  return directory;
}

}  // namespace

absl::StatusOr<ModelDescription> ParseModelDescription(std::string_view text,
                                                       const std::string& path) {
  MT_ASSIGN_OR_RETURN(const json root, ParseJson(text, path));
  if (!root.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": must be an object, not ", DescribeJson(root)));
  }
  JsonFields fields(root, path);
  const std::string type = fields.String("model_type", "");
  MT_RETURN_IF_ERROR(fields.status());
  if (type.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": model_type: is missing"));
  }
  const ModelFamily* const family = FindModelFamily(type);
  const WrapperFamily* const wrapper = FindWrapperFamily(type);
  if (family == nullptr && wrapper == nullptr) {
    std::vector<std::string> known = ModelFamilyNames();
    absl::c_move(WrapperFamilyNames(), std::back_inserter(known));
    absl::c_sort(known);
    return absl::UnimplementedError(absl::StrCat(path, ": model_type: \"", type,
                                                 "\" is not supported; supported are ",
                                                 absl::StrJoin(known, ", ")));
  }
  ModelDescription model =
      wrapper != nullptr ? ReadWrapper(fields, *wrapper) : ReadTextModel(fields, *family);
  MT_RETURN_IF_ERROR(fields.status());
  if (const absl::Status status = CheckModel(model); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
  }
  return model;
}

absl::StatusOr<ModelDescription> ReadModelDescription(const std::string& directory,
                                                      FileSystem* files,
                                                      const std::vector<std::string>& same_names) {
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
  MT_ASSIGN_OR_RETURN(ModelDescription model, ParseModelDescription(text, path));
  const std::string named = DirectoryOfNames(files, directory, same_names);
  if (model.wrapper.is_there()) MT_RETURN_IF_ERROR(CompleteWrapper(files, named, model));
  const std::string prefix = model.wrapper.is_there() ? "" : PrefixOutOfWrapper(model.family);
  if (MostExperts(model) == 0 && prefix.empty()) return model;
  const absl::StatusOr<std::set<std::string>> names = ReadHfTensorNames(files, named);
  if (absl::IsNotFound(names.status())) return model;  // a configuration alone
  if (!names.ok()) return names.status();
  if (!prefix.empty() && names->contains(prefix + "norm.weight")) {
    model.wrapper.model_prefix = prefix;
  }
  const auto has = [&](const std::string& name) {
    return names->contains(model.wrapper.OnDisk(name));
  };
  SettleExpertNames(has, model);
  return model;
}

}  // namespace megatrain

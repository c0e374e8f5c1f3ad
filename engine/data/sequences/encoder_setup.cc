#include "engine/data/sequences/encoder_setup.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/directories/model_directory_file.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/data/sequences/packing.h"

namespace megatrain {
namespace {

// The first eos_token_id of config.json; -1 if it has none.
absl::StatusOr<int32_t> EosOfConfig(const std::string& model_directory, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      ReadModelDirectoryFile(model_directory, "config.json", files));
  const absl::StatusOr<nlohmann::json> config = ParseJson(text.value_or(""), "config.json");
  if (!config.ok() || !config->is_object() || !config->contains("eos_token_id")) return -1;
  const nlohmann::json& eos = (*config)["eos_token_id"];
  const nlohmann::json& first = eos.is_array() && !eos.empty() ? eos[0] : eos;
  if (!first.is_number_unsigned() || first.get<uint64_t>() > kTokenMask) return -1;
  return static_cast<int32_t>(first.get<uint64_t>());
}

bool IsChat(const DataFile& file) {
  return file.format == DataFormat::kAlpaca || file.format == DataFormat::kShareGpt ||
         file.format == DataFormat::kMessages;
}

// The id that closes text documents. -1 if nothing says it and it is not `required`.
absl::StatusOr<int32_t> EosId(const Tokenizer& tokenizer, const std::string& model_directory,
                              int64_t vocabulary, bool required, FileSystem* files) {
  int32_t eos = tokenizer.eos_id();
  if (eos < 0) {
    MT_ASSIGN_OR_RETURN(eos, EosOfConfig(model_directory, files));
  }
  if (eos < 0 && required) {
    return absl::InvalidArgumentError(absl::StrCat(
        model_directory,
        ": neither tokenizer_config.json's eos_token nor config.json's eos_token_id says which "
        "token ends a text; add one of them, or prepare the data as format tokens"));
  }
  if (eos >= vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(model_directory, ": the end-of-text token ", eos,
                                                   " is not below the model's vocabulary of ",
                                                   vocabulary,
                                                   "; the tokenizer is not this model's"));
  }
  return eos;
}

}  // namespace

int32_t PadId(const Tokenizer* tokenizer, int64_t vocabulary) {
  if (tokenizer == nullptr) return 0;
  for (const int32_t id : {tokenizer->pad_id(), tokenizer->eos_id()}) {
    if (id >= 0 && id < vocabulary) return id;
  }
  return 0;
}

absl::StatusOr<ChatTemplateOptions> TemplateOptions(const JobSpec::Data& data,
                                                    const std::string& model_directory,
                                                    FileSystem* files) {
  ChatTemplateOptions options;
  options.name = data.chat_template;
  options.model_directory = model_directory;
  options.files = files;
  if (data.train_on_prompt || data.train_on == "all") {
    options.train_on = TrainOn::kAll;
  } else if (data.train_on == "last") {
    options.train_on = TrainOn::kLast;
  }
  if (data.template_date.empty()) {
    options.day = absl::ToCivilDay(absl::Now(), absl::LocalTimeZone());
  } else if (!absl::ParseCivilTime(data.template_date, &options.day)) {
    return absl::InvalidArgumentError(absl::StrCat("data.template_date: \"", data.template_date,
                                                   "\" is not a day as 2026-01-31"));
  }
  return options;
}

absl::Status PrepareEncoder(const JobSpec::Data& data, const Tokenizer* tokenizer,
                            const std::string& model_directory, FileSystem* files,
                            DocumentEncoderOptions& encoder,
                            std::unique_ptr<ChatTemplate>& chat_template) {
  std::vector<DataFile> entries = data.train;
  entries.insert(entries.end(), data.eval.begin(), data.eval.end());
  encoder.tokenizer = tokenizer;
  // The template of alpaca is a plain text; those of models write their own special tokens.
  encoder.around_chats = data.chat_template == "alpaca";
  for (const DataFile& file : entries) {
    if (file.format == DataFormat::kTokens) continue;
    if (tokenizer == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path, ": format ", DataFormatName(file.format),
                       " needs a tokenizer; give the "
                       "model's directory one, or data.tokenizer: bytes"));
    }
    // Its records may be texts or conversations: what one needs may be missing for the other.
    const bool is_either = file.format == DataFormat::kPreference;
    if ((file.format == DataFormat::kText || is_either) && encoder.eos_id < 0) {
      MT_ASSIGN_OR_RETURN(encoder.eos_id, EosId(*tokenizer, model_directory, encoder.vocabulary,
                                                /*required=*/!is_either, files));
    }
    if ((IsChat(file) || is_either) && chat_template == nullptr) {
      MT_ASSIGN_OR_RETURN(const ChatTemplateOptions options,
                          TemplateOptions(data, model_directory, files));
      absl::StatusOr<std::unique_ptr<ChatTemplate>> created =
          ChatTemplate::Create(options, *tokenizer);
      if (created.ok()) {
        chat_template = *std::move(created);
        encoder.chat_template = chat_template.get();
      } else if (!is_either || data.chat_template != "auto" ||
                 !absl::IsNotFound(created.status())) {
        return created.status();
      }
    }
    if (file.format == DataFormat::kText || is_either || encoder.around_chats) {
      MT_ASSIGN_OR_RETURN(encoder.around, IdsAroundText(*tokenizer, data.add_bos));
    }
  }
  for (const std::vector<int32_t>* ids : {&encoder.around.before, &encoder.around.after}) {
    for (const int32_t id : *ids) {
      if (id >= 0 && id < encoder.vocabulary) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          model_directory, ": the tokenizer puts token ", id,
          " around a text, which is not below the model's vocabulary of ", encoder.vocabulary));
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain

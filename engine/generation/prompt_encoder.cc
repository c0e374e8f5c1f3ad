#include "engine/generation/prompt_encoder.h"

#include <simdjson.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/conversation_record.h"
#include "engine/chat/record_json.h"
#include "engine/data/sequences/document_encoder.h"
#include "engine/data/sequences/encoder_setup.h"

namespace megatrain {
namespace {

Conversation UserTurn(std::string text) {
  Conversation conversation;
  conversation.messages.push_back(ChatMessage::Of("user", std::move(text)));
  return conversation;
}

// A prompt's record, read.
struct Record {
  std::string text;
  std::optional<Conversation> conversation;
  std::optional<uint64_t> seed;
};

absl::StatusOr<Record> ReadRecord(const std::string& json) {
  Record record;
  bool has_prompt = false, has_messages = false;
  const auto read = [&](simdjson::dom::element value) -> absl::Status {
    simdjson::dom::object object;
    if (value.get(object) != simdjson::SUCCESS) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expects an object with prompt or messages, got ", JsonTypeName(value.type())));
    }
    for (const auto& [key, field] : object) {
      if (key == "prompt") {
        MT_ASSIGN_OR_RETURN(record.text, JsonString(field, "prompt"));
        has_prompt = true;
      } else if (key == "messages") {
        has_messages = true;
      } else if (key == "seed") {
        uint64_t seed = 0;
        if (field.get(seed) != simdjson::SUCCESS) {
          return absl::InvalidArgumentError("seed: expects a whole number of 0 or more");
        }
        record.seed = seed;
      }
    }
    if (has_prompt == has_messages) {
      return absl::InvalidArgumentError(
          absl::StrCat(has_prompt ? "has both prompt and messages; give one of them"
                                  : "has neither prompt nor messages; it has ",
                       has_prompt ? "" : JsonKeys(object)));
    }
    if (has_prompt) return absl::OkStatus();
    return ReadMessages(object, &record.conversation.emplace());
  };
  MT_RETURN_IF_ERROR(WithEmbeddedJson(json, "the record", read));
  return record;
}

}  // namespace

absl::StatusOr<EncodedPrompt> PromptEncoder::Encode(const Prompt& prompt,
                                                    const std::string& place) {
  absl::StatusOr<EncodedPrompt> encoded = EncodeAny(prompt);
  const absl::Status status = encoded.ok() ? Check(encoded->ids) : encoded.status();
  if (status.ok()) return encoded;
  return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
}

absl::StatusOr<EncodedPrompt> PromptEncoder::EncodeAny(const Prompt& prompt) {
  EncodedPrompt encoded;
  Record record;
  record.text = prompt.text;
  if (!prompt.record.empty()) {
    MT_ASSIGN_OR_RETURN(record, ReadRecord(prompt.record));
  }
  encoded.seed = record.seed;
  if (!record.conversation.has_value() && options_.chat) {
    record.conversation = UserTurn(std::move(record.text));
  }
  MT_RETURN_IF_ERROR(record.conversation.has_value()
                         ? EncodeChat(*record.conversation, &encoded.ids)
                         : EncodeText(record.text, &encoded.ids));
  return encoded;
}

// As before a text of the training data. What goes behind one would end it.
absl::Status PromptEncoder::EncodeText(const std::string& text, std::vector<int32_t>* ids) {
  MT_ASSIGN_OR_RETURN(const SpecialIds around,
                      IdsAroundText(*options_.tokenizer, options_.add_bos));
  *ids = around.before;
  MT_RETURN_IF_ERROR(options_.tokenizer->Encode(text, ids));
  if (ids->empty() && options_.tokenizer->bos_id() >= 0)
    ids->push_back(options_.tokenizer->bos_id());
  return absl::OkStatus();
}

absl::Status PromptEncoder::EncodeChat(const Conversation& conversation,
                                       std::vector<int32_t>* ids) {
  if (template_ == nullptr) {
    JobSpec::Data data;
    data.chat_template = options_.chat_template;
    data.template_date = options_.template_date;
    MT_ASSIGN_OR_RETURN(const ChatTemplateOptions options,
                        TemplateOptions(data, options_.model_directory, options_.files));
    MT_ASSIGN_OR_RETURN(template_, ChatTemplate::Create(options, *options_.tokenizer));
  }
  // The template of alpaca is a plain text; those of models write their own special tokens.
  if (options_.chat_template == "alpaca") {
    MT_ASSIGN_OR_RETURN(const SpecialIds around,
                        IdsAroundText(*options_.tokenizer, options_.add_bos));
    *ids = around.before;
  }
  MT_ASSIGN_OR_RETURN(const std::string text, template_->RenderPrompt(conversation));
  return options_.tokenizer->Encode(text, ids);
}

absl::Status PromptEncoder::Check(const std::vector<int32_t>& ids) const {
  if (ids.empty()) {
    return absl::InvalidArgumentError("the model needs at least one token to go on from");
  }
  const int64_t tokens = static_cast<int64_t>(ids.size());
  if (tokens + options_.answer_tokens > options_.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        tokens, " tokens of prompt and ", options_.answer_tokens, " new ones are more than ",
        options_.max_tokens, ", ", options_.limit, "; shorten the prompt or ask for fewer tokens"));
  }
  for (int64_t i = 0; i < tokens; ++i) {
    const int32_t id = ids[static_cast<size_t>(i)];
    if (id >= 0 && id < options_.vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "token ", id, " at position ", i, " is none of the model's, whose vocabulary has the ids ",
        "0 to ", options_.vocabulary - 1, "; use the tokenizer that belongs to this model"));
  }
  return absl::OkStatus();
}

}  // namespace megatrain

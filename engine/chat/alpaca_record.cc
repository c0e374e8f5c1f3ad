// The part of conversation_record.h that reads alpaca records.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/conversation_record.h"
#include "engine/chat/record_json.h"

namespace megatrain {
namespace {

namespace dom = simdjson::dom;

absl::Status Bad(const char* name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" ", what));
}

absl::Status ReadHistory(dom::element value, std::vector<ChatMessage>* messages) {
  constexpr char kName[] = "history";
  if (IsJsonEmpty(value)) return absl::OkStatus();
  dom::array turns;
  if (value.get(turns) != simdjson::SUCCESS)
    return Bad(kName,
               absl::StrCat("is ", JsonTypeName(value.type()), "; a list of pairs is needed"));
  for (dom::element turn : turns) {
    dom::array pair;
    if (turn.get(pair) != simdjson::SUCCESS || pair.size() != 2) {
      return Bad(kName, "holds something that is not a pair [question, answer]");
    }
    for (dom::element text : pair) {
      MT_ASSIGN_OR_RETURN(std::string content, JsonString(text, kName));
      const char* role = messages->size() % 2 == 0 ? "user" : "assistant";
      messages->push_back(ChatMessage::Of(role, std::move(content)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadAlpacaPrompt(dom::object record, Conversation* conversation) {
  std::optional<std::string> instruction, input;
  bool has_history = false;
  for (dom::key_value_pair field : record) {
    if (field.key == "instruction") {
      MT_RETURN_IF_ERROR(SetJsonString(field.value, "instruction", &instruction));
    } else if (field.key == "input" && !field.value.is_null()) {
      MT_RETURN_IF_ERROR(SetJsonString(field.value, "input", &input));
    } else if (field.key == "history") {
      if (std::exchange(has_history, true)) return Bad("history", "is there twice");
      MT_RETURN_IF_ERROR(ReadHistory(field.value, &conversation->messages));
    }
  }
  if (!instruction.has_value()) return Bad("instruction", "is missing");
  conversation->alpaca.emplace_back("instruction", JinjaValue::String(*instruction));
  std::string user = *std::move(instruction);
  if (input.has_value() && !input->empty()) {
    absl::StrAppend(&user, "\n", *input);
    conversation->alpaca.emplace_back("input", JinjaValue::String(*std::move(input)));
  }
  conversation->messages.push_back(ChatMessage::Of("user", std::move(user)));
  return absl::OkStatus();
}

absl::Status ReadAlpaca(dom::object record, Conversation* conversation) {
  std::optional<std::string> output;
  for (dom::key_value_pair field : record) {
    if (field.key == "output") MT_RETURN_IF_ERROR(SetJsonString(field.value, "output", &output));
  }
  MT_RETURN_IF_ERROR(ReadAlpacaPrompt(record, conversation));
  conversation->messages.push_back(ChatMessage::Of("assistant", *std::move(output)));
  return ReadBeside(record, MessageForm::kMessages, conversation);
}

}  // namespace megatrain

#include "engine/chat/preference_record.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/conversation_record.h"
#include "engine/chat/record_json.h"

namespace megatrain {
namespace {

namespace dom = simdjson::dom;

absl::Status Bad(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" ", what));
}

// The value of a key, nullopt if it is missing or null.
absl::StatusOr<std::optional<dom::element>> Find(dom::object record, const std::string& key) {
  std::optional<dom::element> found;
  bool seen = false;
  for (dom::key_value_pair field : record) {
    if (field.key != key) continue;
    if (std::exchange(seen, true)) return Bad(key, "is there twice");
    if (!field.value.is_null()) found = field.value;
  }
  return found;
}

absl::StatusOr<dom::element> Get(dom::object record, const std::string& key) {
  MT_ASSIGN_OR_RETURN(const std::optional<dom::element> found, Find(record, key));
  if (found.has_value()) return *found;
  return Bad(key, absl::StrCat("is missing; a pair of answers has \"chosen\" and \"rejected\", and "
                               "this record has ",
                               JsonKeys(record)));
}

// Keys of a record beside its texts are refused, because no template reads them.
absl::Status CheckTextsAlone(dom::object record) {
  Conversation beside;
  MT_RETURN_IF_ERROR(ReadBeside(record, MessageForm::kMessages, &beside));
  const char* const key = !beside.tools.is_none()       ? "tools"
                          : !beside.documents.is_none() ? "documents"
                          : !beside.kwargs.empty()      ? "chat_template_kwargs"
                          : !beside.messages.empty()    ? "system"
                                                        : nullptr;
  if (key == nullptr) return absl::OkStatus();
  return Bad(key,
             "is for a chat template, and this record's prompt and answers are texts; give them "
             "as lists of messages");
}

bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// The bytes that TRL's extract_prompt takes for the prompt: up to the first character that differs,
// without a space before it. Of texts of which one begins the other, all but the last character
// of the shorter.
size_t CommonBytes(const std::string& a, const std::string& b) {
  const size_t least = std::min(a.size(), b.size());
  size_t at = static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(least), b.begin()).first -
      a.begin());
  const bool differs = at < least;
  if (!differs && at > 0) --at;
  while (at > 0 && !BeginsCharacter(a[at])) --at;
  if (differs && at > 0 && a[at - 1] == ' ') --at;
  return at;
}

absl::Status ReadTexts(dom::object record, std::optional<dom::element> prompt, dom::element chosen,
                       dom::element rejected, PreferencePair* pair) {
  MT_RETURN_IF_ERROR(CheckTextsAlone(record));
  MT_ASSIGN_OR_RETURN(pair->chosen, JsonString(chosen, "chosen"));
  MT_ASSIGN_OR_RETURN(pair->rejected, JsonString(rejected, "rejected"));
  if (prompt.has_value()) {
    MT_ASSIGN_OR_RETURN(pair->prompt, JsonString(*prompt, "prompt"));
    return absl::OkStatus();
  }
  const size_t common = CommonBytes(pair->chosen, pair->rejected);
  pair->prompt = pair->chosen.substr(0, common);
  pair->chosen.erase(0, common);
  pair->rejected.erase(0, common);
  return absl::OkStatus();
}

// Returns true if the objects have the same keys and values, in any order.
bool Same(dom::element a, dom::element b) {
  dom::object first, second;
  if (a.get(first) != simdjson::SUCCESS || b.get(second) != simdjson::SUCCESS) return false;
  if (first.size() != second.size()) return false;
  for (dom::key_value_pair field : first) {
    dom::element other;
    if (second[field.key].get(other) != simdjson::SUCCESS) return false;
    if (simdjson::minify(field.value) != simdjson::minify(other)) return false;
  }
  return true;
}

// The number of messages that two whole conversations have in common at the beginning. Each keeps
// one at least.
size_t CommonMessages(dom::array chosen, dom::array rejected) {
  size_t common = 0;
  auto a = chosen.begin(), b = rejected.begin();
  while (a != chosen.end() && b != rejected.end() && Same(*a, *b)) {
    ++a;
    ++b;
    ++common;
  }
  const size_t least = std::min(chosen.size(), rejected.size());
  return std::min(common, least == 0 ? 0 : least - 1);
}

// Messages of sharegpt have `from`.
MessageForm FormOf(dom::element messages) {
  dom::array list;
  dom::object first;
  if (messages.get(list) == simdjson::SUCCESS) {
    if (list.size() == 0 || list.at(0).get(first) != simdjson::SUCCESS)
      return MessageForm::kMessages;
  } else if (messages.get(first) != simdjson::SUCCESS) {
    return MessageForm::kMessages;
  }
  return first["from"].error() == simdjson::SUCCESS ? MessageForm::kShareGpt
                                                    : MessageForm::kMessages;
}

using Messages = std::vector<ChatMessage>;

absl::Status CheckAnswer(const Messages& answer, const std::string& name) {
  if (std::any_of(answer.begin(), answer.end(),
                  [](const ChatMessage& message) { return message.is_assistant(); })) {
    return absl::OkStatus();
  }
  return Bad(name, "has no message of the assistant that another answer could be preferred to");
}

// Makes the conversations of a prompt, which is whole but for what stands beside it, and answers.
absl::Status Join(dom::object record, MessageForm form, Conversation prompt, const Messages& chosen,
                  const Messages& rejected, PreferencePair* pair) {
  MT_RETURN_IF_ERROR(CheckAnswer(chosen, "chosen"));
  MT_RETURN_IF_ERROR(CheckAnswer(rejected, "rejected"));
  for (ChatMessage& message : prompt.messages) {
    if (message.is_assistant()) message.trained = false;
  }
  const bool is_implicit = prompt.messages.empty();
  MT_RETURN_IF_ERROR(ReadBeside(record, form, &prompt));
  if (is_implicit && !prompt.messages.empty() &&
      (chosen[0].role == "system" || rejected[0].role == "system")) {
    return Bad("system", "is there beside an answer that begins with a system message; give one");
  }
  pair->is_chat = true;
  pair->chosen_chat = prompt;
  pair->rejected_chat = std::move(prompt);
  for (const auto& [chat, answer] :
       {std::pair{&pair->chosen_chat, &chosen}, std::pair{&pair->rejected_chat, &rejected}}) {
    chat->messages.insert(chat->messages.end(), answer->begin(), answer->end());
  }
  return absl::OkStatus();
}

absl::Status ReadList(dom::object record, const std::string& key, MessageForm form,
                      PreferencePair* pair) {
  MT_ASSIGN_OR_RETURN(const dom::element prompt, Get(record, key));
  MT_ASSIGN_OR_RETURN(const dom::element chosen, Get(record, "chosen"));
  MT_ASSIGN_OR_RETURN(const dom::element rejected, Get(record, "rejected"));
  Conversation conversation;
  Messages chosen_messages, rejected_messages;
  MT_RETURN_IF_ERROR(ReadMessageList(prompt, key, form, &conversation.messages));
  MT_RETURN_IF_ERROR(ReadMessageList(chosen, "chosen", form, &chosen_messages));
  MT_RETURN_IF_ERROR(ReadMessageList(rejected, "rejected", form, &rejected_messages));
  return Join(record, form, std::move(conversation), chosen_messages, rejected_messages, pair);
}

absl::Status ReadAlpacaPair(dom::object record, PreferencePair* pair) {
  MT_ASSIGN_OR_RETURN(const dom::element chosen, Get(record, "chosen"));
  MT_ASSIGN_OR_RETURN(const dom::element rejected, Get(record, "rejected"));
  MT_ASSIGN_OR_RETURN(std::string chosen_text, JsonString(chosen, "chosen"));
  MT_ASSIGN_OR_RETURN(std::string rejected_text, JsonString(rejected, "rejected"));
  Conversation conversation;
  MT_RETURN_IF_ERROR(ReadAlpacaPrompt(record, &conversation));
  return Join(record, MessageForm::kMessages, std::move(conversation),
              {ChatMessage::Of("assistant", std::move(chosen_text))},
              {ChatMessage::Of("assistant", std::move(rejected_text))}, pair);
}

// Returns true for a list whose first message is the assistant's, which is no whole conversation.
bool BeginsWithAnswer(dom::element messages) {
  dom::array list;
  if (messages.get(list) != simdjson::SUCCESS) return false;
  const auto is = [&list](const char* key, std::string_view wanted) {
    std::string_view role;
    return list.at(0)[key].get(role) == simdjson::SUCCESS && role == wanted;
  };
  return is("role", "assistant") || is("from", "gpt") || is("from", "assistant");
}

absl::Status ReadPrompt(dom::object record, PreferencePair* pair) {
  MT_ASSIGN_OR_RETURN(const std::optional<dom::element> prompt, Find(record, "prompt"));
  MT_ASSIGN_OR_RETURN(const dom::element chosen, Get(record, "chosen"));
  MT_ASSIGN_OR_RETURN(const dom::element rejected, Get(record, "rejected"));
  if (!prompt.has_value()) {
    // Ranking data of LLaMA-Factory: a conversation, and what follows it.
    const auto has = [&record](const char* key) {
      return record[key].error() == simdjson::SUCCESS;
    };
    if (chosen.is_string() && has("instruction")) return ReadAlpacaPair(record, pair);
    const bool continues = chosen.is_object() || BeginsWithAnswer(chosen);
    if (continues && has("messages")) {
      return ReadList(record, "messages", MessageForm::kMessages, pair);
    }
    if (continues && has("conversations")) {
      return ReadList(record, "conversations", MessageForm::kShareGpt, pair);
    }
  }
  if (chosen.is_string()) return ReadTexts(record, prompt, chosen, rejected, pair);
  const MessageForm form = FormOf(chosen);
  Conversation conversation;
  Messages chosen_messages, rejected_messages;
  MT_RETURN_IF_ERROR(ReadMessageList(chosen, "chosen", form, &chosen_messages));
  MT_RETURN_IF_ERROR(ReadMessageList(rejected, "rejected", form, &rejected_messages));
  if (prompt.has_value() && !prompt->is_string()) {
    MT_RETURN_IF_ERROR(ReadMessageList(*prompt, "prompt", FormOf(*prompt), &conversation.messages));
  } else {
    // A prompt that is a text repeats what the conversations begin with.
    if (prompt.has_value() && !IsJsonEmpty(*prompt) &&
        (BeginsWithAnswer(chosen) || BeginsWithAnswer(rejected))) {
      return Bad("prompt",
                 "is needed as a list of messages where the answers begin with the assistant's "
                 "message");
    }
    dom::array whole_chosen, whole_rejected;
    if (chosen.get(whole_chosen) != simdjson::SUCCESS ||
        rejected.get(whole_rejected) != simdjson::SUCCESS) {
      return Bad("prompt",
                 "is needed as a list of messages where the answers are single messages; without "
                 "it they must be whole conversations");
    }
    const auto common = static_cast<ptrdiff_t>(CommonMessages(whole_chosen, whole_rejected));
    conversation.messages.assign(chosen_messages.begin(), chosen_messages.begin() + common);
    chosen_messages.erase(chosen_messages.begin(), chosen_messages.begin() + common);
    rejected_messages.erase(rejected_messages.begin(), rejected_messages.begin() + common);
  }
  return Join(record, form, std::move(conversation), chosen_messages, rejected_messages, pair);
}

}  // namespace

absl::Status ReadPreference(dom::object record, PreferenceForm form, PreferencePair* pair) {
  switch (form) {
    case PreferenceForm::kPrompt:
      return ReadPrompt(record, pair);
    case PreferenceForm::kMessages:
      return ReadList(record, "messages", MessageForm::kMessages, pair);
    case PreferenceForm::kShareGpt:
      return ReadList(record, "conversations", MessageForm::kShareGpt, pair);
    case PreferenceForm::kAlpaca:
      return ReadAlpacaPair(record, pair);
  }
  return absl::OkStatus();
}

}  // namespace megatrain

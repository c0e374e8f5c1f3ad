#include "engine/chat/conversation_record.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/record_json.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

namespace dom = simdjson::dom;

absl::Status Bad(const std::string& name, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" ", ToAbsl(what)));
}

absl::Status IsNot(const std::string& name, dom::element value, std::string_view needed) {
  return Bad(name,
             absl::StrCat("is ", JsonTypeName(value.type()), "; ", ToAbsl(needed), " is needed"));
}

// Calls `use` with each item of a list of objects and its name.
template <typename Use>
absl::Status ForEachObject(dom::element value, const std::string& name, const Use& use) {
  dom::array list;
  if (value.get(list) != simdjson::SUCCESS) return IsNot(name, value, "a list of objects");
  size_t i = 0;
  for (dom::element item : list) {
    const std::string item_name = absl::StrCat(name, "[", i++, "]");
    dom::object object;
    if (item.get(object) != simdjson::SUCCESS) return IsNot(item_name, item, "an object");
    MT_RETURN_IF_ERROR(use(object, item, item_name));
  }
  return absl::OkStatus();
}

// Reads a list of objects as it is.
absl::Status SetObjects(dom::element value, const std::string& name, JinjaValue* target) {
  MT_RETURN_IF_ERROR(ForEachObject(
      value, name, [](dom::object, dom::element, const std::string&) { return absl::OkStatus(); }));
  MT_ASSIGN_OR_RETURN(*target, JsonToJinja(value, name));
  return absl::OkStatus();
}

// Reads tools. With `wrap`, bare functions are wrapped.
absl::Status SetTools(dom::element value, bool wrap, JinjaValue* target) {
  constexpr char kName[] = "tools";
  if (value.is_null()) return absl::OkStatus();
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) {
    if (text.empty()) return absl::OkStatus();
    return WithEmbeddedJson(text, kName, [&](dom::element tools) {
      if (tools.is_string()) return IsNot(kName, tools, "a list of objects");
      return SetTools(tools, wrap, target);
    });
  }
  if (!wrap) return SetObjects(value, kName, target);
  JinjaValue::List tools;
  MT_RETURN_IF_ERROR(ForEachObject(
      value, kName,
      [&](dom::object tool, dom::element item, const std::string& name) -> absl::Status {
        MT_ASSIGN_OR_RETURN(JinjaValue value, JsonToJinja(item, name));
        if (tool["function"].error() != simdjson::SUCCESS) {
          value = JinjaValue::MakeDict(
              {{"type", JinjaValue::String("function")}, {"function", std::move(value)}});
        }
        tools.push_back(std::move(value));
        return absl::OkStatus();
      }));
  *target = JinjaValue::MakeList(std::move(tools));
  return absl::OkStatus();
}

// Messages and variables have few keys, each of them once.
absl::Status CheckKeys(dom::object object, const std::string& name) {
  constexpr size_t kKeysMax = 64;
  if (object.size() > kKeysMax) {
    return Bad(name, absl::StrCat("has more than ", kKeysMax, " keys"));
  }
  for (auto field = object.begin(); field != object.end(); ++field) {
    for (auto other = object.begin(); other != field; ++other) {
      if (other.key() == field.key()) {
        return Bad(absl::StrCat(name, ".", std::string(field.key())), "is there twice");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status SetKwargs(dom::element value, JinjaVariables* kwargs) {
  constexpr char kName[] = "chat_template_kwargs";
  if (value.is_null()) return absl::OkStatus();
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return IsNot(kName, value, "an object");
  MT_RETURN_IF_ERROR(CheckKeys(object, kName));
  for (dom::key_value_pair field : object) {
    const std::string key(field.key);
    const std::string name = absl::StrCat(kName, ".", key);
    for (const char* own : {"messages", "tools", "documents", "add_generation_prompt",
                            "continue_final_message", "tokenize", "chat_template"}) {
      if (key == own) return Bad(name, "is not a variable that a record may set");
    }
    MT_ASSIGN_OR_RETURN(JinjaValue item, JsonToJinja(field.value, name));
    kwargs->emplace_back(key, std::move(item));
  }
  return absl::OkStatus();
}

// Keys that bear on what is rendered, and are not supported.
bool IsRefused(std::string_view key) {
  constexpr std::string_view kRefused[] = {
      "functions", "function_call", "tool_choice",           "chat_template",         "images",
      "videos",    "audios",        "add_generation_prompt", "continue_final_message"};
  return std::find(std::begin(kRefused), std::end(kRefused), key) != std::end(kRefused);
}

}  // namespace

absl::Status ReadBeside(dom::object record, MessageForm form, Conversation* conversation) {
  std::optional<std::string> system;
  bool tools = false, documents = false, kwargs = false;
  const auto once = [](bool* seen, const std::string& key) {
    return std::exchange(*seen, true) ? Bad(key, "is there twice") : absl::OkStatus();
  };
  for (dom::key_value_pair field : record) {
    const std::string key(field.key);
    if (key == "tools") {
      MT_RETURN_IF_ERROR(once(&tools, key));
      MT_RETURN_IF_ERROR(
          SetTools(field.value, form == MessageForm::kShareGpt, &conversation->tools));
    } else if (key == "documents") {
      MT_RETURN_IF_ERROR(once(&documents, key));
      if (!field.value.is_null()) {
        MT_RETURN_IF_ERROR(SetObjects(field.value, key, &conversation->documents));
      }
    } else if (key == "chat_template_kwargs") {
      MT_RETURN_IF_ERROR(once(&kwargs, key));
      MT_RETURN_IF_ERROR(SetKwargs(field.value, &conversation->kwargs));
    } else if (key == "system" && !field.value.is_null()) {
      MT_RETURN_IF_ERROR(SetJsonString(field.value, key, &system));
    } else if (IsRefused(key) && !IsJsonEmpty(field.value)) {
      return Bad(key,
                 "is not supported: it bears on what a chat template renders (tools are given "
                 "in \"tools\" and in messages); remove it");
    }
  }
  if (!system.has_value() || system->empty()) return absl::OkStatus();
  std::vector<ChatMessage>& messages = conversation->messages;
  if (!messages.empty() && messages[0].role == "system") {
    return Bad("system",
               "is there beside a conversation that begins with a system message; give one");
  }
  messages.insert(messages.begin(), ChatMessage::Of("system", *std::move(system)));
  return absl::OkStatus();
}

namespace {

absl::Status SetWeight(dom::element value, const std::string& name, ChatMessage* message) {
  bool trained = false;
  double weight = -1;  // of a number of any kind
  if (value.get(trained) == simdjson::SUCCESS) {
    weight = trained;
  } else if (value.get(weight) != simdjson::SUCCESS || (weight != 0 && weight != 1)) {
    return Bad(name, "is neither 0 nor 1");
  }
  if (!message->is_assistant()) {
    return Bad(name, absl::StrCat("is of a message with the role ", message->role,
                                  "; the loss is on the assistant's only"));
  }
  message->trained = weight == 1;
  return absl::OkStatus();
}

// Reads a content in parts, and their texts. Null keys, which are of other types of parts, are left
// out: templates take some for an image by the key alone.
absl::Status ReadParts(dom::element value, const std::string& name, JinjaValue::List* parts,
                       std::string* text) {
  return ForEachObject(
      value, name,
      [&](dom::object part, dom::element, const std::string& part_name) -> absl::Status {
        std::optional<std::string> type, content;
        JinjaValue::Entries entries;
        for (dom::key_value_pair field : part) {
          const std::string key(field.key);
          if (field.value.is_null()) continue;
          const std::string field_name = absl::StrCat(part_name, ".", key);
          if (key == "type") {
            MT_RETURN_IF_ERROR(SetJsonString(field.value, field_name, &type));
            entries.emplace_back(key, JinjaValue::String(*type));
          } else if (key == "text") {
            MT_RETURN_IF_ERROR(SetJsonString(field.value, field_name, &content));
            entries.emplace_back(key, JinjaValue::String(*content));
          } else if (type.value_or("text") == "text") {
            return Bad(field_name,
                       "is not a key of a text; {\"type\": \"text\", \"text\": "
                       "\"...\"} is supported");
          }
        }
        if (type.value_or("") != "text") {
          return Bad(absl::StrCat(part_name, ".type"),
                     type.has_value() ? absl::StrCat("is \"", type->substr(0, 80),
                                                     "\"; only \"text\" is supported")
                                      : "is missing");
        }
        if (!content.has_value()) return Bad(absl::StrCat(part_name, ".text"), "is missing");
        absl::StrAppend(text, parts->empty() ? "" : "\n", *content);
        parts->push_back(JinjaValue::MakeDict(std::move(entries)));
        return absl::OkStatus();
      });
}

absl::Status MissingField(dom::object object, const std::string& name, const char* key) {
  return Bad(absl::StrCat(name, ".", key),
             absl::StrCat("is missing; the message has ", JsonKeys(object)));
}

absl::Status ReadMessage(dom::object object, const std::string& name, ChatMessage* message) {
  MT_RETURN_IF_ERROR(CheckKeys(object, name));
  std::optional<dom::element> weight;
  bool explained = false;  // why there is no content
  for (dom::key_value_pair field : object) {
    const std::string key(field.key);
    const std::string field_name = absl::StrCat(name, ".", key);
    if (field.value.is_null()) continue;
    if (key == "weight") {
      weight = field.value;
      continue;
    }
    if (key == "role") {
      MT_ASSIGN_OR_RETURN(message->role, JsonString(field.value, field_name));
    } else if (key == "content" && field.value.is_array()) {
      message->in_parts = true;
      JinjaValue::List parts;
      MT_RETURN_IF_ERROR(ReadParts(field.value, field_name, &parts, &message->text));
      message->fields.emplace_back(key, JinjaValue::MakeList(std::move(parts)));
      continue;
    } else if (key == "content") {
      MT_ASSIGN_OR_RETURN(message->text, JsonString(field.value, field_name));
    } else if (key == "tool_calls") {
      const auto any = [](dom::object, dom::element, const std::string&) {
        return absl::OkStatus();
      };
      MT_RETURN_IF_ERROR(ForEachObject(field.value, field_name, any));
    } else if (key == "function_call") {
      return Bad(field_name, "is not supported; give \"tool_calls\"");
    }
    explained |= key == "tool_calls" || key == "reasoning_content" || key == "reasoning" ||
                 key == "thinking";
    MT_ASSIGN_OR_RETURN(JinjaValue value, JsonToJinja(field.value, field_name));
    message->fields.emplace_back(key, std::move(value));
  }
  if (message->Find("role") == nullptr) return MissingField(object, name, "role");
  if (message->Find("content") == nullptr && !(explained && message->is_assistant())) {
    return MissingField(object, name, "content");
  }
  if (weight.has_value()) return SetWeight(*weight, absl::StrCat(name, ".weight"), message);
  return absl::OkStatus();
}

// Reads the tool calls of a turn from `function_call`.
absl::Status ReadFunctionCalls(dom::element calls, const std::string& name, JinjaValue* target) {
  constexpr char kNeeded[] = "an object {\"name\", \"arguments\"}, or a list of them,";
  JinjaValue::List list;
  const auto add = [&](dom::object call, dom::element, const std::string& call_name) {
    std::string_view function;
    dom::element arguments;
    if (call["name"].get(function) != simdjson::SUCCESS ||
        call["arguments"].get(arguments) != simdjson::SUCCESS || call.size() != 2) {
      return Bad(call_name, absl::StrCat("has ", JsonKeys(call), "; ", kNeeded, " is needed"));
    }
    absl::StatusOr<JinjaValue> value = JsonToJinja(arguments, call_name);
    if (!value.ok()) return value.status();
    list.push_back(JinjaValue::MakeDict(
        {{"type", JinjaValue::String("function")},
         {"function", JinjaValue::MakeDict({{"name", JinjaValue::String(std::string(function))},
                                            {"arguments", *std::move(value)}})}}));
    return absl::OkStatus();
  };
  dom::object single;
  if (calls.get(single) == simdjson::SUCCESS) {
    MT_RETURN_IF_ERROR(add(single, calls, name));
  } else if (!calls.is_array()) {
    return IsNot(name, calls, kNeeded);
  } else {
    MT_RETURN_IF_ERROR(ForEachObject(calls, name, add));
  }
  if (list.empty()) return Bad(name, "calls no function");
  *target = JinjaValue::MakeList(std::move(list));
  return absl::OkStatus();
}

// Returns the role of messages that `from` stands for, or "" if it is not known.
std::string RoleOf(const std::string& from) {
  if (from == "human" || from == "user") return "user";
  if (from == "gpt" || from == "assistant" || from == "function_call") return "assistant";
  if (from == "observation" || from == "tool" || from == "function") return "tool";
  if (from == "system" || from == "developer") return from;
  return "";
}

absl::Status ReadTurn(dom::object object, const std::string& name, ChatMessage* message) {
  MT_RETURN_IF_ERROR(CheckKeys(object, name));
  std::optional<std::string> from, value;
  std::optional<dom::element> weight;
  const std::string from_name = absl::StrCat(name, ".from");
  const std::string value_name = absl::StrCat(name, ".value");
  for (dom::key_value_pair field : object) {
    if (field.key == "from") {
      MT_RETURN_IF_ERROR(SetJsonString(field.value, from_name, &from));
    } else if (field.key == "value") {
      MT_RETURN_IF_ERROR(SetJsonString(field.value, value_name, &value));
    } else if (field.value.is_null()) {
      continue;
    } else if (field.key == "weight") {
      weight = field.value;
    } else {
      return Bad(absl::StrCat(name, ".", std::string(field.key)),
                 "is not a key of a turn; from, value and weight are");
    }
  }
  if (!from.has_value()) return MissingField(object, name, "from");
  if (!value.has_value()) return MissingField(object, name, "value");
  const std::string role = RoleOf(*from);
  if (role.empty()) {
    return Bad(from_name, absl::StrCat("is \"", from->substr(0, 80),
                                       "\"; human or user, gpt or assistant, system, developer, "
                                       "function_call, or observation, tool or function is "
                                       "expected"));
  }
  if (*from == "function_call") {
    message->role = role;
    JinjaValue calls;
    MT_RETURN_IF_ERROR(WithEmbeddedJson(*value, value_name, [&](dom::element parsed) {
      return ReadFunctionCalls(parsed, value_name, &calls);
    }));
    message->fields = {{"role", JinjaValue::String(role)}, {"tool_calls", std::move(calls)}};
  } else {
    *message = ChatMessage::Of(role, *std::move(value));
  }
  if (weight.has_value()) return SetWeight(*weight, absl::StrCat(name, ".weight"), message);
  return absl::OkStatus();
}

// Reads the list of messages in `key`, which has to be there once.
absl::Status ReadList(dom::object record, const std::string& key, MessageForm form,
                      std::vector<ChatMessage>* messages) {
  bool found = false;
  for (dom::key_value_pair field : record) {
    if (field.key != key) continue;
    if (found) return Bad(key, "is there twice");
    found = true;
    if (!field.value.is_array()) return IsNot(key, field.value, "a list of messages");
    MT_RETURN_IF_ERROR(ReadMessageList(field.value, key, form, messages));
  }
  if (messages->empty()) return Bad(key, "is empty");
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadMessages(dom::object record, Conversation* conversation) {
  MT_RETURN_IF_ERROR(ReadList(record, "messages", MessageForm::kMessages, &conversation->messages));
  return ReadBeside(record, MessageForm::kMessages, conversation);
}

absl::Status ReadShareGpt(dom::object record, Conversation* conversation) {
  MT_RETURN_IF_ERROR(
      ReadList(record, "conversations", MessageForm::kShareGpt, &conversation->messages));
  return ReadBeside(record, MessageForm::kShareGpt, conversation);
}

absl::Status ReadMessageList(dom::element value, const std::string& name, MessageForm form,
                             std::vector<ChatMessage>* messages) {
  const auto read = [&](dom::object object, dom::element, const std::string& object_name) {
    ChatMessage* const message = &messages->emplace_back();
    return form == MessageForm::kMessages ? ReadMessage(object, object_name, message)
                                          : ReadTurn(object, object_name, message);
  };
  dom::object single;
  if (value.get(single) == simdjson::SUCCESS) return read(single, value, name);
  return ForEachObject(value, name, read);
}

}  // namespace megatrain

#include "engine/data/sequences/example.h"

#include <simdjson.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

namespace dom = simdjson::dom;

const char* TypeName(dom::element_type type) {
  switch (type) {
    case dom::element_type::ARRAY:
      return "a list";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "true or false";
    case dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

// Only finds where a text stops being JSON, to the end of the first wrong token; simdjson does not
// say.
class FirstErrorHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    position_ = position;
    return false;
  }
  std::optional<std::size_t> position_;  // from 1
};

absl::Status Malformed(std::string_view json, simdjson::error_code code) {
  const absl::Status utf8 = CheckUtf8(json);
  if (!utf8.ok()) return utf8;
  std::string where;
  FirstErrorHandler handler;
  nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  if (handler.position_.has_value()) {
    const size_t at = std::min(*handler.position_ > 0 ? *handler.position_ - 1 : 0, json.size());
    const std::string_view before = json.substr(0, at);
    const int64_t lines = std::count(before.begin(), before.end(), '\n');
    const size_t line_begin = lines > 0 ? before.rfind('\n') + 1 : 0;
    if (lines > 0) where = absl::StrCat(" on line ", lines + 1, " of the record");
    absl::StrAppend(&where, " near column ", at - line_begin + 1);
  }
  std::string what = simdjson::error_message(code);
  // simdjson's texts for these two are about its own insides.
  if (code == simdjson::TAPE_ERROR) what = "a value, a comma or a bracket is missing or misplaced";
  if (code == simdjson::DEPTH_ERROR) what = "nested more than 1,024 deep";
  return absl::InvalidArgumentError(absl::StrCat("malformed JSON", where, ": ", what));
}

absl::StatusOr<std::string> String(dom::element value, const std::string& name) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" is ", TypeName(value.type()), "; a string is needed"));
  }
  return std::string(text);
}

std::string KeysOf(dom::object object) {
  std::vector<std::string> keys;
  for (dom::key_value_pair field : object) {
    if (keys.size() == 8) {
      keys.push_back("...");
      break;
    }
    keys.push_back(absl::StrCat("\"", std::string(field.key), "\""));
  }
  return keys.empty() ? "no keys" : absl::StrJoin(keys, ", ");
}

// Sets *value once; a second field of the same name is an error, for which one counts depends on
// the reader.
absl::Status SetOnce(const std::string& name, dom::element value,
                     std::optional<std::string>* target) {
  if (target->has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is there twice"));
  }
  MT_ASSIGN_OR_RETURN(*target, String(value, name));
  return absl::OkStatus();
}

absl::Status Missing(DataFormat format, const std::string& name, dom::object record) {
  std::string advice;
  for (dom::key_value_pair field : record) {
    if (field.key == "conversations" && format != DataFormat::kShareGpt) {
      advice = "; it looks like format: sharegpt";
    } else if (field.key == "messages" && format != DataFormat::kMessages) {
      advice = "; it looks like format: messages";
    } else if (field.key == "instruction" && format != DataFormat::kAlpaca) {
      advice = "; it looks like format: alpaca";
    } else if (field.key == "text" && format != DataFormat::kText && advice.empty()) {
      advice = "; it looks like format: text";
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is missing, which format ",
                                                 DataFormatName(format), " needs; the record has ",
                                                 KeysOf(record), advice));
}

absl::Status ParseText(dom::object record, Example* example) {
  std::optional<std::string> text;
  for (dom::key_value_pair field : record) {
    if (field.key == "text") MT_RETURN_IF_ERROR(SetOnce("text", field.value, &text));
  }
  if (!text.has_value()) return Missing(DataFormat::kText, "text", record);
  example->is_chat = false;
  example->text = *std::move(text);
  return absl::OkStatus();
}

absl::Status ParseAlpaca(dom::object record, Example* example) {
  std::optional<std::string> instruction, input, output;
  for (dom::key_value_pair field : record) {
    if (field.key == "instruction") {
      MT_RETURN_IF_ERROR(SetOnce("instruction", field.value, &instruction));
    } else if (field.key == "input" && !field.value.is_null()) {
      MT_RETURN_IF_ERROR(SetOnce("input", field.value, &input));
    } else if (field.key == "output") {
      MT_RETURN_IF_ERROR(SetOnce("output", field.value, &output));
    }
  }
  if (!instruction.has_value()) return Missing(DataFormat::kAlpaca, "instruction", record);
  if (!output.has_value()) return Missing(DataFormat::kAlpaca, "output", record);
  std::string user = *std::move(instruction);
  size_t input_begin = 0;
  if (input.has_value() && !input->empty()) {
    input_begin = user.size() + 1;
    absl::StrAppend(&user, "\n", *input);
  }
  example->is_chat = true;
  example->messages = {{"user", std::move(user), input_begin},
                       {"assistant", *std::move(output), 0}};
  return absl::OkStatus();
}

// The keys of a conversation's turn.
struct TurnKeys {
  const char* role;
  const char* content;
};

absl::Status ParseTurn(dom::element value, const std::string& name, const TurnKeys& keys,
                       ChatMessage* message) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", TypeName(value.type()),
                                                   "; an object with \"", keys.role, "\" and \"",
                                                   keys.content, "\" is needed"));
  }
  std::optional<std::string> role, content;
  for (dom::key_value_pair field : object) {
    if (field.key == keys.role) {
      MT_RETURN_IF_ERROR(SetOnce(absl::StrCat(name, ".", keys.role), field.value, &role));
    } else if (field.key == keys.content) {
      MT_RETURN_IF_ERROR(SetOnce(absl::StrCat(name, ".", keys.content), field.value, &content));
    } else if (field.key == "tool_calls" && !field.value.is_null()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", name, ".tool_calls\": tool calls are not supported"));
    }
  }
  for (const auto& [key, field] :
       {std::pair{keys.role, &role}, std::pair{keys.content, &content}}) {
    if (!field->has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", name, ".", key, "\" is missing; the message has ", KeysOf(object)));
    }
  }
  message->role = *std::move(role);
  message->content = *std::move(content);
  return absl::OkStatus();
}

// No tools: absent, null, or an empty list or text.
absl::Status CheckNoTools(dom::element tools) {
  dom::array list;
  std::string_view text;
  if (tools.is_null() || (tools.get(list) == simdjson::SUCCESS && list.size() == 0) ||
      (tools.get(text) == simdjson::SUCCESS && (text.empty() || text == "[]"))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("\"tools\": tools are not supported");
}

// The turns in `key`, which has to be there once. Refuses tools.
absl::Status ParseTurns(DataFormat format, const char* key, const TurnKeys& keys,
                        dom::object record, std::vector<ChatMessage>* messages) {
  bool found = false;
  messages->clear();
  for (dom::key_value_pair field : record) {
    if (field.key == "tools") MT_RETURN_IF_ERROR(CheckNoTools(field.value));
    if (field.key != key) continue;
    if (found) return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is there twice"));
    found = true;
    dom::array list;
    if (field.value.get(list) != simdjson::SUCCESS) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", key, "\" is ", TypeName(field.value.type()), "; a list of messages is needed"));
    }
    for (dom::element value : list) {
      const std::string name = absl::StrCat(key, "[", messages->size(), "]");
      MT_RETURN_IF_ERROR(ParseTurn(value, name, keys, &messages->emplace_back()));
    }
  }
  if (!found) return Missing(format, key, record);
  if (messages->empty()) return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is empty"));
  return absl::OkStatus();
}

absl::Status ParseMessages(dom::object record, Example* example) {
  example->is_chat = true;
  return ParseTurns(DataFormat::kMessages, "messages", {"role", "content"}, record,
                    &example->messages);
}

// The role of messages that `from` stands for.
absl::StatusOr<std::string> RoleOf(const std::string& from, const std::string& name) {
  if (from == "human" || from == "user") return "user";
  if (from == "gpt" || from == "assistant") return "assistant";
  if (from == "system") return "system";
  if (from == "function_call" || from == "observation" || from == "tool") {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, ".from\" is \"", from, "\": tool calls are not supported"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, ".from\" is \"", from.substr(0, 80),
                   "\"; human or user, gpt or assistant, or system is expected"));
}

absl::Status ParseShareGpt(dom::object record, Example* example) {
  constexpr char kTurns[] = "conversations";
  MT_RETURN_IF_ERROR(
      ParseTurns(DataFormat::kShareGpt, kTurns, {"from", "value"}, record, &example->messages));
  for (size_t i = 0; i < example->messages.size(); ++i) {
    ChatMessage& message = example->messages[i];
    MT_ASSIGN_OR_RETURN(message.role, RoleOf(message.role, absl::StrCat(kTurns, "[", i, "]")));
  }
  std::optional<std::string> system;
  for (dom::key_value_pair field : record) {
    if (field.key == "system" && !field.value.is_null()) {
      MT_RETURN_IF_ERROR(SetOnce("system", field.value, &system));
    }
  }
  if (system.has_value() && !system->empty()) {
    if (example->messages[0].role == "system") {
      return absl::InvalidArgumentError(
          "\"system\" is there beside a conversation that begins with a system turn; give one");
    }
    example->messages.insert(example->messages.begin(), {"system", *std::move(system), 0});
  }
  example->is_chat = true;
  return absl::OkStatus();
}

}  // namespace

struct ExampleParser::Impl {
  dom::parser parser;

  absl::StatusOr<dom::object> Record(std::string_view json) {
    dom::element root;
    const simdjson::error_code code = parser.parse(json.data(), json.size()).get(root);
    if (code != simdjson::SUCCESS) return Malformed(json, code);
    dom::object record;
    if (root.get(record) != simdjson::SUCCESS) {
      return absl::InvalidArgumentError(
          absl::StrCat("the record is ", TypeName(root.type()), "; an object ({...}) is needed"));
    }
    return record;
  }
};

ExampleParser::ExampleParser() : impl_(std::make_unique<Impl>()) {}
ExampleParser::~ExampleParser() = default;

absl::Status ExampleParser::Parse(DataFormat format, std::string_view json, Example* example) {
  MT_ASSIGN_OR_RETURN(const dom::object record, impl_->Record(json));
  switch (format) {
    case DataFormat::kText:
      return ParseText(record, example);
    case DataFormat::kAlpaca:
      return ParseAlpaca(record, example);
    case DataFormat::kShareGpt:
      return ParseShareGpt(record, example);
    case DataFormat::kMessages:
      return ParseMessages(record, example);
    case DataFormat::kTokens:
      break;
  }
  return absl::InvalidArgumentError("format tokens has no JSON form");
}

absl::StatusOr<DataFormat> ExampleParser::Guess(std::string_view json) {
  MT_ASSIGN_OR_RETURN(const dom::object record, impl_->Record(json));
  bool text = false, alpaca = false;
  for (dom::key_value_pair field : record) {
    if (field.key == "messages") return DataFormat::kMessages;
    if (field.key == "conversations") return DataFormat::kShareGpt;
    alpaca |= field.key == "instruction";
    text |= field.key == "text";
  }
  if (alpaca) return DataFormat::kAlpaca;
  if (text) return DataFormat::kText;
  return absl::InvalidArgumentError(absl::StrCat(
      "no known format: the record has ", KeysOf(record),
      "; \"text\", \"instruction\" and \"output\", \"conversations\", or \"messages\" is "
      "expected"));
}

}  // namespace megatrain

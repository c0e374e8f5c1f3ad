#include "engine/data/sequences/example.h"

#include <simdjson.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/conversation_record.h"
#include "engine/chat/record_json.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

namespace dom = simdjson::dom;

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
  if (code == simdjson::NUMBER_ERROR && !handler.position_.has_value()) {
    return absl::InvalidArgumentError(
        "a number is beyond what is read, 64-bit integers and FP64; write it as a text");
  }
  std::string what = simdjson::error_message(code);
  // simdjson's texts for these two are about its own insides.
  if (code == simdjson::TAPE_ERROR) what = "a value, a comma or a bracket is missing or misplaced";
  if (code == simdjson::DEPTH_ERROR) what = "nested more than 1,024 deep";
  return absl::InvalidArgumentError(absl::StrCat("malformed JSON", where, ": ", what));
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
                                                 JsonKeys(record), advice));
}

absl::Status ParseText(dom::object record, Example* example) {
  std::optional<std::string> text;
  for (dom::key_value_pair field : record) {
    if (field.key == "text") MT_RETURN_IF_ERROR(SetJsonString(field.value, "text", &text));
  }
  if (!text.has_value()) return Missing(DataFormat::kText, "text", record);
  example->is_chat = false;
  example->text = *std::move(text);
  return absl::OkStatus();
}

// Checks that the record has a key that its format needs.
absl::Status CheckHas(DataFormat format, const char* key, dom::object record) {
  dom::element value;
  if (record[key].get(value) == simdjson::SUCCESS) return absl::OkStatus();
  return Missing(format, key, record);
}

absl::Status ParseChat(DataFormat format, dom::object record, Example* example) {
  example->is_chat = true;
  example->conversation = {};
  Conversation* const conversation = &example->conversation;
  switch (format) {
    case DataFormat::kAlpaca:
      MT_RETURN_IF_ERROR(CheckHas(format, "instruction", record));
      MT_RETURN_IF_ERROR(CheckHas(format, "output", record));
      return ReadAlpaca(record, conversation);
    case DataFormat::kShareGpt:
      MT_RETURN_IF_ERROR(CheckHas(format, "conversations", record));
      return ReadShareGpt(record, conversation);
    default:
      MT_RETURN_IF_ERROR(CheckHas(format, "messages", record));
      return ReadMessages(record, conversation);
  }
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
      return absl::InvalidArgumentError(absl::StrCat("the record is ", JsonTypeName(root.type()),
                                                     "; an object ({...}) is needed"));
    }
    return record;
  }
};

ExampleParser::ExampleParser() : impl_(std::make_unique<Impl>()) {}
ExampleParser::~ExampleParser() = default;

absl::Status ExampleParser::Parse(DataFormat format, std::string_view json, Example* example) {
  MT_ASSIGN_OR_RETURN(const dom::object record, impl_->Record(json));
  example->pair.reset();
  switch (format) {
    case DataFormat::kText:
      return ParseText(record, example);
    case DataFormat::kAlpaca:
    case DataFormat::kShareGpt:
    case DataFormat::kMessages:
      return ParseChat(format, record, example);
    case DataFormat::kTokens:
    case DataFormat::kPreference:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("format ", DataFormatName(format), " has no such examples"));
}

absl::Status ExampleParser::ParsePair(DataFormat format, std::string_view json, Example* example) {
  MT_ASSIGN_OR_RETURN(const dom::object record, impl_->Record(json));
  PreferencePair& pair = example->pair.emplace();
  switch (format) {
    case DataFormat::kPreference:
      return ReadPreference(record, PreferenceForm::kPrompt, &pair);
    case DataFormat::kAlpaca:
      return ReadPreference(record, PreferenceForm::kAlpaca, &pair);
    case DataFormat::kShareGpt:
      return ReadPreference(record, PreferenceForm::kShareGpt, &pair);
    case DataFormat::kMessages:
      return ReadPreference(record, PreferenceForm::kMessages, &pair);
    case DataFormat::kText:
    case DataFormat::kTokens:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("format ", DataFormatName(format), " holds no pairs of answers"));
}

absl::StatusOr<DataFormat> ExampleParser::Guess(std::string_view json) {
  MT_ASSIGN_OR_RETURN(const dom::object record, impl_->Record(json));
  const auto has = [&record](const char* key) { return record[key].error() == simdjson::SUCCESS; };
  if (has("chosen") && has("rejected")) return DataFormat::kPreference;
  if (has("messages")) return DataFormat::kMessages;
  if (has("conversations")) return DataFormat::kShareGpt;
  if (has("instruction")) return DataFormat::kAlpaca;
  if (has("text")) return DataFormat::kText;
  return absl::InvalidArgumentError(absl::StrCat(
      "no known format: the record has ", JsonKeys(record),
      "; \"text\", \"instruction\" and \"output\", \"conversations\", \"messages\", or "
      "\"chosen\" and \"rejected\" is expected"));
}

}  // namespace megatrain

#include "engine/chat/record_json.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

namespace dom = simdjson::dom;

// Leaves room for the list of messages, a message and the list of its parts.
constexpr int kDepthMax = JinjaValue::kDepthMax - 8;

absl::StatusOr<JinjaValue> Convert(dom::element value, const std::string& name, int depth) {
  if (depth > kDepthMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" is nested more than ", kDepthMax, " deep"));
  }
  switch (value.type()) {
    case dom::element_type::ARRAY: {
      JinjaValue::List items;
      for (dom::element item : dom::array(value)) {
        MT_ASSIGN_OR_RETURN(items.emplace_back(), Convert(item, name, depth + 1));
      }
      return JinjaValue::MakeList(std::move(items));
    }
    case dom::element_type::OBJECT: {
      JinjaValue::Entries entries;
      for (dom::key_value_pair field : dom::object(value)) {
        MT_ASSIGN_OR_RETURN(JinjaValue item, Convert(field.value, name, depth + 1));
        entries.emplace_back(std::string(field.key), std::move(item));
      }
      return JinjaValue::MakeDict(std::move(entries));
    }
    case dom::element_type::STRING:
      return JinjaValue::String(std::string(std::string_view(value)));
    case dom::element_type::INT64:
      return JinjaValue::Int(int64_t(value));
    case dom::element_type::DOUBLE:
      return JinjaValue::Float(double(value));
    case dom::element_type::BOOL:
      return JinjaValue::Bool(bool(value));
    case dom::element_type::NULL_VALUE:
      return JinjaValue::None();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("\"", name, "\" holds a whole number beyond 64 bits"));
  }
}

}  // namespace

const char* JsonTypeName(dom::element_type type) {
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

std::string JsonKeys(dom::object object) {
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

bool IsJsonEmpty(dom::element value) {
  dom::array list;
  dom::object object;
  std::string_view text;
  return value.is_null() || (value.get(list) == simdjson::SUCCESS && list.size() == 0) ||
         (value.get(object) == simdjson::SUCCESS && object.size() == 0) ||
         (value.get(text) == simdjson::SUCCESS && text.empty());
}

absl::StatusOr<std::string> JsonString(dom::element value, const std::string& name) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" is ", JsonTypeName(value.type()), "; a string is needed"));
  }
  return std::string(text);
}

absl::Status SetJsonString(dom::element value, const std::string& name,
                           std::optional<std::string>* target) {
  if (target->has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is there twice"));
  }
  MT_ASSIGN_OR_RETURN(*target, JsonString(value, name));
  return absl::OkStatus();
}

absl::StatusOr<JinjaValue> JsonToJinja(dom::element value, const std::string& name) {
  return Convert(value, name, 1);
}

absl::Status WithEmbeddedJson(std::string_view text, const std::string& name,
                              absl::FunctionRef<absl::Status(dom::element value)> use) {
  dom::parser parser;
  dom::element value;
  const simdjson::error_code code = parser.parse(text.data(), text.size()).get(value);
  if (code != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is a text that is not JSON"));
  }
  return use(value);
}

}  // namespace megatrain

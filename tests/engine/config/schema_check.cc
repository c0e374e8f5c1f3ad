#include "tests/engine/config/schema_check.h"

#include <algorithm>
#include <cstdint>
#include <regex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

bool HasType(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

// Wide enough for int64_t and uint64_t, which the library compares as if both were signed.
long double NumberOf(const Json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_number_integer()) return value.get<int64_t>();
  return value.get<double>();
}

// Whether `value` obeys one keyword that needs no look into it.
bool Obeys(const std::string& word, const Json& rule, const Json& value) {
  if (word == "type") {
    if (rule.is_string()) return HasType(value, rule);
    for (const Json& type : rule) {
      if (HasType(value, type)) return true;
    }
    return false;
  }
  if (word == "enum") return std::find(rule.begin(), rule.end(), value) != rule.end();
  if (word == "const") return value == rule;
  if (word == "minimum") return !value.is_number() || NumberOf(value) >= NumberOf(rule);
  if (word == "maximum") return !value.is_number() || NumberOf(value) <= NumberOf(rule);
  if (word == "exclusiveMinimum") return !value.is_number() || NumberOf(value) > NumberOf(rule);
  if (word == "exclusiveMaximum") return !value.is_number() || NumberOf(value) < NumberOf(rule);
  if (word == "minItems") return !value.is_array() || value.size() >= rule;
  if (word == "pattern") {
    return !value.is_string() ||
           std::regex_search(value.get<std::string>(), std::regex(rule.get<std::string>()));
  }
  if (word == "uniqueItems") {
    for (size_t i = 0; rule == true && value.is_array() && i < value.size(); ++i) {
      if (std::find(value.begin(), value.begin() + i, value[i]) != value.begin() + i) return false;
    }
    return true;
  }
  if (word == "required") {
    for (const Json& name : rule) {
      if (value.is_object() && !value.contains(name.get<std::string>())) return false;
    }
    return true;
  }
  if (word == "anyOf") {
    for (const Json& choice : rule) {
      if (WrongBySchema(choice, value).empty()) return true;
    }
    return false;
  }
  return word == "$schema" || word == "title" || word == "description" || word == "default" ||
         word == "examples";
}

}  // namespace

Json YamlToJson(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kSequence: {
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(YamlToJson(item));
      return list;
    }
    case YamlNode::Kind::kMap: {
      Json map = Json::object();
      for (const auto& [key, value] : node.entries) map[key] = YamlToJson(value);
      return map;
    }
    case YamlNode::Kind::kScalar:
      break;
  }
  int64_t whole = 0;
  uint64_t large = 0;
  double number = 0;
  if (node.quoted) return node.scalar;
  if (node.scalar == "true" || node.scalar == "false") return node.scalar == "true";
  if (absl::SimpleAtoi(node.scalar, &whole)) return whole;
  if (absl::SimpleAtoi(node.scalar, &large)) return large;
  if (absl::SimpleAtod(node.scalar, &number)) return number;
  return node.scalar;
}

std::string WrongBySchema(const Json& schema, const Json& value, const std::string& path) {
  for (const auto& [word, rule] : schema.items()) {
    if (word == "properties" || word == "additionalProperties") continue;
    if (word == "items") {
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
        const std::string wrong = WrongBySchema(rule, value[i], absl::StrCat(path, "[", i, "]"));
        if (!wrong.empty()) return wrong;
      }
    } else if (!Obeys(word, rule, value)) {
      return absl::StrCat(path, ": ", value.dump(), " against ", word, ": ", rule.dump());
    }
  }
  if (!schema.contains("properties") || !value.is_object()) return "";
  for (const auto& [name, each] : value.items()) {
    if (!schema["properties"].contains(name)) return absl::StrCat(path, ".", name, ": unknown");
    const std::string wrong =
        WrongBySchema(schema["properties"][name], each, absl::StrCat(path, ".", name));
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace megatrain

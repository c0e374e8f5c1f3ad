#include "engine/config/config_values.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "engine/base/bytes.h"
#include "engine/config/config_schema.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

// Shortest decimal text that reads back as the same double.
std::string DoubleText(double value) {
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

std::string ZeroNote(const std::string& zero) {
  return zero.empty() ? "" : absl::StrCat("0 = ", zero);
}

// A word without quotes that `parse` takes.
template <typename T, typename Parse>
auto ReadPlain(T* field, const Parse& parse) {
  return [field, parse](const YamlNode& node) -> std::optional<ValueError> {
    T value{};
    const bool plain = node.kind == YamlNode::Kind::kScalar && !node.quoted && !node.scalar.empty();
    if (!plain || !parse(node.scalar, &value)) return ValueError{};
    *field = value;
    return std::nullopt;
  };
}

}  // namespace

ConfigValue Whole(int64_t* field, int64_t min, int64_t max, const std::string& zero) {
  const bool bounded = max != std::numeric_limits<int64_t>::max();
  const bool gap = min > 1 && !zero.empty();
  ConfigValue value;
  value.expects = bounded ? absl::StrCat("a whole number from ", min, " to ", max)
                          : absl::StrCat("a whole number of ", min, " or more");
  Json range = {{"minimum", min}};
  if (bounded) range["maximum"] = max;
  value.schema["type"] = "integer";
  if (gap) {
    absl::StrAppend(&value.expects, ", or 0 (", zero, ")");
    value.schema["anyOf"] = {{{"const", 0}}, range};
  } else {
    value.note = ZeroNote(zero);
    value.schema.update(range);
  }
  value.read = ReadPlain(field, [=](const std::string& text, int64_t* read) {
    if (!absl::SimpleAtoi(text, read)) return false;
    return (*read >= min && *read <= max) || (gap && *read == 0);
  });
  value.text = [field] { return absl::StrCat(*field); };
  return value;
}

ConfigValue WholeOr(const std::string& word, int64_t* field, int64_t min, int64_t max) {
  ConfigValue value = Whole(field, min, max);
  absl::StrAppend(&value.expects, ", or ", word);
  value.schema["type"] = {"integer", "string"};
  value.schema["pattern"] = absl::StrCat("^", word, "$");  // of a text; the bounds are of a number
  value.read = [=, number = value.read](const YamlNode& node) -> std::optional<ValueError> {
    if (node.kind != YamlNode::Kind::kScalar || node.scalar != word) return number(node);
    *field = 0;
    return std::nullopt;
  };
  value.text = [=] { return *field == 0 ? Json(word).dump() : absl::StrCat(*field); };
  return value;
}

ConfigValue Whole(uint64_t* field) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  ConfigValue value;
  value.expects = absl::StrCat("a whole number from 0 to ", kMax);
  value.schema = {{"type", "integer"}, {"minimum", 0}, {"maximum", kMax}};
  value.read = ReadPlain(
      field, [](const std::string& text, uint64_t* read) { return absl::SimpleAtoi(text, read); });
  value.text = [field] { return absl::StrCat(*field); };
  return value;
}

ConfigValue Number(double* field, const NumberRange& range, const std::string& zero) {
  ConfigValue value;
  value.expects =
      absl::StrCat("a number ", range.min_allowed ? "from " : "above ", DoubleText(range.min),
                   range.max_allowed ? " to " : " to below ", DoubleText(range.max));
  value.note = ZeroNote(zero);
  value.schema = {{"type", "number"},
                  {range.min_allowed ? "minimum" : "exclusiveMinimum", range.min},
                  {range.max_allowed ? "maximum" : "exclusiveMaximum", range.max}};
  value.read = ReadPlain(field, [range](const std::string& text, double* read) {
    if (!absl::SimpleAtod(text, read) || !std::isfinite(*read)) return false;
    return (range.min_allowed ? *read >= range.min : *read > range.min) &&
           (range.max_allowed ? *read <= range.max : *read < range.max);
  });
  value.text = [field] { return DoubleText(*field); };
  return value;
}

ConfigValue Boolean(bool* field) {
  ConfigValue value;
  value.expects = "true or false";
  value.schema["type"] = "boolean";
  value.read = ReadPlain(field, [](const std::string& text, bool* read) {
    *read = text == "true";
    return *read || text == "false";
  });
  value.text = [field] { return std::string(*field ? "true" : "false"); };
  return value;
}

ConfigValue Bytes(int64_t* field, const std::string& zero) {
  ConfigValue value;
  value.expects = "a size in bytes, or with KiB, MiB, GiB or TiB, as in 24GiB";
  value.note = ZeroNote(zero);
  value.schema = {{"type", {"integer", "string"}},
                  {"minimum", 0},
                  {"pattern", "^[0-9]+(\\.[0-9]+)? *(KiB|MiB|GiB|TiB)$"}};
  const auto read = ReadPlain(field, [](const std::string& text, int64_t* read) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(text);
    if (bytes.ok()) *read = *bytes;
    return bytes.ok();
  });
  value.read = [read](YamlNode node) {
    // JSON, which is YAML too, has a size with its unit in quotes.
    if (absl::EndsWith(node.scalar, "B")) node.quoted = false;
    return read(node);
  };
  value.text = [field] { return absl::StrCat(*field); };
  return value;
}

ConfigValue Text(std::string* field, const std::string& expects, const std::string& pattern,
                 bool (*good)(const std::string&)) {
  ConfigValue value;
  value.expects = expects;
  value.schema["type"] = "string";
  if (!pattern.empty()) value.schema["pattern"] = pattern;
  value.read = [=](const YamlNode& node) -> std::optional<ValueError> {
    if (node.kind != YamlNode::Kind::kScalar) return ValueError{};
    if (good != nullptr && !good(node.scalar)) return ValueError{};
    *field = node.scalar;
    return std::nullopt;
  };
  value.text = [field] { return *field; };
  return value;
}

bool IsNotEmpty(const std::string& text) { return !text.empty(); }

ConfigValue Path(std::string* field, const std::string& expects, const std::string& empty) {
  if (empty.empty()) return Text(field, expects, ".", IsNotEmpty);
  ConfigValue value = Text(field, expects);
  value.note = absl::StrCat("\"\" = ", empty);
  return value;
}

ConfigValue Texts(std::vector<std::string>* field, const std::string& expects,
                  const std::string& pattern, std::string (*wrong)(const std::string&)) {
  ConfigValue value;
  value.expects = expects;
  value.schema["type"] = "array";
  value.schema["items"] = {{"type", "string"}, {"pattern", pattern.empty() ? "." : pattern}};
  value.read = [=](const YamlNode& node) -> std::optional<ValueError> {
    if (node.kind != YamlNode::Kind::kSequence) return ValueError{};
    field->clear();
    for (const YamlNode& item : node.items) {
      std::string expected;
      if (item.kind != YamlNode::Kind::kScalar || item.scalar.empty()) {
        expected = expects;
      } else if (wrong != nullptr) {
        expected = wrong(item.scalar);
      }
      if (!expected.empty()) {
        return ValueError{absl::StrCat("expects ", expected, ", got ", item.Describe()), "",
                          item.where};
      }
      field->push_back(item.scalar);
    }
    return std::nullopt;
  };
  value.text = [field] { return Json(*field).dump(); };
  return value;
}

ConfigValue Wholes(std::vector<int64_t>* field, int64_t min, int64_t max) {
  ConfigValue value;
  value.expects = absl::StrCat("a list of whole numbers from ", min, " to ", max);
  value.schema["type"] = "array";
  value.schema["items"] = {{"type", "integer"}, {"minimum", min}, {"maximum", max}};
  value.read = [=](const YamlNode& node) -> std::optional<ValueError> {
    if (node.kind != YamlNode::Kind::kSequence) return ValueError{};
    field->clear();
    for (const YamlNode& item : node.items) {
      int64_t number = 0;
      if (Whole(&number, min, max).read(item).has_value()) {
        return ValueError{absl::StrCat("expects a whole number from ", min, " to ", max, ", got ",
                                       item.Describe()),
                          "", item.where};
      }
      field->push_back(number);
    }
    return std::nullopt;
  };
  value.text = [field] { return Json(*field).dump(); };
  return value;
}

ConfigValue OneOf(const std::vector<std::string>& words, std::function<void(size_t)> set,
                  std::function<size_t()> get) {
  ConfigValue value;
  for (size_t i = 0; i < words.size(); ++i) {
    const char* join = i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    absl::StrAppend(&value.expects, join, words[i]);
  }
  value.schema = {{"type", "string"}, {"enum", words}};
  value.read = [=](const YamlNode& node) -> std::optional<ValueError> {
    if (node.kind != YamlNode::Kind::kScalar) return ValueError{};
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] != node.scalar) continue;
      set(i);
      return std::nullopt;
    }
    return ValueError{};
  };
  value.text = [=] { return get() < words.size() ? words[get()] : std::string(); };
  return value;
}

ConfigValue Choice(std::string* field, const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& word : words) pairs.emplace_back(word, word);
  return Choice<std::string>(field, pairs);
}

ConfigValue ListType(const std::vector<ConfigKey>& entry_keys) {
  ConfigValue value;
  value.expects = absl::StrCat("a list of ", EntryShape(entry_keys));
  value.schema = {{"type", {"array", "null"}}, {"items", MapSchema(entry_keys)}};
  return value;
}

}  // namespace megatrain

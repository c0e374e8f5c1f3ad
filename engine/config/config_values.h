// The types that values of a configuration have. Each function binds one to a field, which must
// outlive the result. A number, boolean or size in quotes is a text, and refused.
#ifndef MEGATRAIN_ENGINE_CONFIG_CONFIG_VALUES_H_
#define MEGATRAIN_ENGINE_CONFIG_CONFIG_VALUES_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/config/config_key.h"
#include "engine/config/config_reader.h"

namespace megatrain {

// Whole numbers. Where `min` is above 1, a `zero` that is not empty allows 0 too, and says what it
// means.
ConfigValue Whole(int64_t* field, int64_t min, int64_t max = std::numeric_limits<int64_t>::max(),
                  const std::string& zero = "");
ConfigValue Whole(uint64_t* field);

struct NumberRange {
  double min = 0;
  double max = 0;
  bool min_allowed = true;
  bool max_allowed = true;
};
// Finite numbers.
ConfigValue Number(double* field, const NumberRange& range, const std::string& zero = "");

ConfigValue Boolean(bool* field);

// Sizes in bytes, "24GiB" too.
ConfigValue Bytes(int64_t* field, const std::string& zero);

// Any text, numbers and words alike, that `good` takes. `pattern` says the same to the schema.
ConfigValue Text(std::string* field, const std::string& expects, const std::string& pattern = "",
                 bool (*good)(const std::string&) = nullptr);
// A path. `empty` says what no path means; without it a path must be there.
ConfigValue Path(std::string* field, const std::string& expects, const std::string& empty = "");
bool IsNotEmpty(const std::string& text);

// A list of texts that are not empty. `wrong` gives what is expected in place of an entry, or "".
ConfigValue Texts(std::vector<std::string>* field, const std::string& expects,
                  const std::string& pattern = "",
                  std::string (*wrong)(const std::string&) = nullptr);

// One of several words. `get` gives the number of the present one.
ConfigValue OneOf(const std::vector<std::string>& words, std::function<void(size_t)> set,
                  std::function<size_t()> get);

template <typename T>
ConfigValue Choice(T* field, const std::vector<std::pair<std::string, T>>& words) {
  std::vector<std::string> names;
  for (const auto& [word, value] : words) names.push_back(word);
  return OneOf(
      names, [=](size_t i) { *field = words[i].second; },
      [=] {
        size_t i = 0;
        while (i < words.size() && words[i].second != *field) ++i;
        return i;
      });
}
ConfigValue Choice(std::string* field, const std::vector<std::string>& words);

// A field that is empty until its key is given. `make` binds the type to a T.
template <typename T, typename Make>
ConfigValue Optional(std::optional<T>* field, const Make& make) {
  const auto held = std::make_shared<T>();
  ConfigValue value = make(held.get());
  value.read = [field, held, read = value.read](const YamlNode& node) {
    std::optional<ValueError> error = read(node);
    if (!error) *field = *held;
    return error;
  };
  value.text = [field, held, text = value.text] {
    if (!field->has_value()) return std::string("null");
    *held = **field;
    return text();
  };
  return value;
}

// The type of a list of maps with these keys: its text for people and its schema. Its `read` and
// `text` are empty.
ConfigValue ListType(const std::vector<ConfigKey>& entry_keys);

// A list of maps, each with the keys that `entry_keys` binds to a T. `check` says what is wrong
// with an entry as a whole; `text` is the canonical text.
template <typename T>
ConfigValue ListOf(std::vector<T>* field, std::vector<ConfigKey> (*entry_keys)(T*),
                   std::optional<ValueError> (*check)(const T&),
                   std::string (*text)(const std::vector<T>&)) {
  T shape;
  ConfigValue value = ListType(entry_keys(&shape));
  value.read = [=](const YamlNode& node) -> std::optional<ValueError> {
    field->clear();
    if (node.kind == YamlNode::Kind::kNull) return std::nullopt;
    if (node.kind != YamlNode::Kind::kSequence) return ValueError{};
    T entry;
    const std::vector<ConfigKey> keys = entry_keys(&entry);
    for (const YamlNode& item : node.items) {
      entry = T();
      std::optional<ValueError> error = ReadEntry(item, keys);
      if (!error) error = check(entry);
      if (error) {
        const char* dot = error->path.empty() ? "" : ".";
        error->path = absl::StrCat("[", field->size(), "]", dot, error->path);
        if (error->where.empty()) error->where = item.where;
        return error;
      }
      field->push_back(entry);
    }
    return std::nullopt;
  };
  value.text = [=] { return text(*field); };
  return value;
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_CONFIG_VALUES_H_

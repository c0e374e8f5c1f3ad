// The types of configuration values. Each function returns the type that its comment describes,
// bound to `field`, which must outlive the result. A number or boolean that is written in quotes is
// refused, because quotes make it a text. Arguments named `expects` complete the message
// "expects ...".
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

// A whole number in [min, max]. `zero`, if not empty, says what 0 means; if `min` is above 1, 0 is
// then allowed too. REQUIRES: `min` is not 1 if there is a `zero`.
ConfigValue Whole(int64_t* field, int64_t min, int64_t max = std::numeric_limits<int64_t>::max(),
                  const std::string& zero = "");
// A whole number in [0, 2^64).
ConfigValue Whole(uint64_t* field);

// A whole number in [min, max], or `word`, which is read as 0. REQUIRES: min > 0.
ConfigValue WholeOr(const std::string& word, int64_t* field, int64_t min, int64_t max);

// The bounds of a number, and whether each bound itself is allowed.
struct NumberRange {
  double min = 0;
  double max = 0;
  bool min_allowed = true;
  bool max_allowed = true;
};
// A finite number in `range`. `zero`, if not empty, says what 0 means.
ConfigValue Number(double* field, const NumberRange& range, const std::string& zero = "");

// The word true or false.
ConfigValue Boolean(bool* field);

// A size as ParseBytes (engine/base/bytes.h) takes it (24GiB). It may be in quotes if it has a
// unit. `zero`, if not empty, says what 0 means.
ConfigValue Bytes(int64_t* field, const std::string& zero);

// A text that `good` accepts; any text if `good` is null. `pattern` is the same rule as a regular
// expression, for the schema.
ConfigValue Text(std::string* field, const std::string& expects, const std::string& pattern = "",
                 bool (*good)(const std::string&) = nullptr);
// A path. `empty` says what "" means; if it is empty, "" is refused.
ConfigValue Path(std::string* field, const std::string& expects, const std::string& empty = "");
// Returns !text.empty(), for use as `good`.
bool IsNotEmpty(const std::string& text);

// A list, perhaps an empty one, of texts that are not empty. `wrong`, if given, returns "" for a
// good entry, and otherwise completes "expects ..." in the error about that entry.
ConfigValue Texts(std::vector<std::string>* field, const std::string& expects,
                  const std::string& pattern = "",
                  std::string (*wrong)(const std::string&) = nullptr);

// A list of whole numbers in [min, max].
ConfigValue Wholes(std::vector<int64_t>* field, int64_t min, int64_t max);

// One of `words`. `set` receives the index of the word that was read. `get` returns the index of
// the present word; if that is not below words.size(), ConfigValue::text returns "". What the two
// functions refer to must outlive the result.
ConfigValue OneOf(const std::vector<std::string>& words, std::function<void(size_t)> set,
                  std::function<size_t()> get);

// One of `words`, each with the value that it stands for.
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
// One of `words`, which the field holds itself.
ConfigValue Choice(std::string* field, const std::vector<std::string>& words);

// A field that is nullopt until its key is given. make(T*) returns the type of the value, bound to
// a T.
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

// The type of a list of maps with the keys `entry_keys`: `expects` and the schema. `read` and
// `text` are left empty.
ConfigValue ListType(const std::vector<ConfigKey>& entry_keys);

// A list of maps; null is the empty list. `entry_keys` binds the keys of an entry to a T, `check`
// returns an error of the entry as a whole or nullopt, and `text` returns the canonical text of the
// list, which must be "[]" for the empty one.
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

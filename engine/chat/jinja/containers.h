// The containers that copies of a JinjaValue share: texts, sequences, dicts and objects of the
// evaluator. Once a value holds one, only an Object may change.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_CONTAINERS_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_CONTAINERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/chat/jinja/jinja_value.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain::jinja {

class Runtime;

// An undefined value's message, for when it is used: "'foo' is undefined".
struct Missing {
  std::string message;
};

// A str. `is_markup` is Jinja's Markup, the text of the filters safe and escape: text added to it
// is escaped.
struct Text {
  std::string text;
  bool is_markup = false;
};

// Sequences that differ in how they print, compare and may be indexed.
enum class SequenceKind { kList, kTuple, kRange, kKeys, kValues, kItems };

// The bounds and the step of a range.
struct Range {
  int64_t start = 0, stop = 0, step = 1;
};

// A list, a tuple, a range or a view of a dict.
struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  int depth = 1;  // levels of containers, with this one
  // True for a tuple whose items are all hashable; meaningless for other kinds. The answer is
  // stored, because a walk through tuples that share items may take exponential time.
  bool hashable = true;
  std::vector<JinjaValue> items;
  Range range;  // of which a range has the items
  // True for a tuple of the filter groupby, whose items have the names grouper and list.
  bool is_group = false;
};

// A dict in insertion order. Keys are Python's: 1, 1.0 and True are the same.
struct Dict {
  int depth = 1;  // levels of containers, with this one
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  // The places of text keys in `entries`; empty below kIndexedMin entries. Views point into the
  // keys.
  absl::flat_hash_map<std::string_view, size_t, TextHash, std::equal_to<>> index;

  static constexpr size_t kIndexedMin = 9;

  // Returns the value of a text key, or nullptr. Valid until an entry is added.
  const JinjaValue* Find(std::string_view key) const;
  // Adds or replaces an entry. REQUIRES: `key` is text.
  void Set(JinjaValue key, JinjaValue value);
  // Adds an entry. REQUIRES: no entry has `key`.
  void Append(JinjaValue key, JinjaValue value);
};

// The arguments of a call, in the order in which it gives them.
struct CallValues {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> named;

  // Moves a named argument to `value` and returns true, or returns false if there is none.
  bool TakeNamed(std::string_view name, JinjaValue* value);
};

// A value with behaviour: a function, a macro, a namespace, an iterator, ...
class Object : public std::enable_shared_from_this<Object> {
 public:
  explicit Object(int depth = 1) : depth_(depth) {}
  virtual ~Object() = default;
  // Returns how many levels of containers and objects are freed with this one, itself included.
  int depth() const { return depth_; }
  // The functions below return InvalidArgument for what Python would raise, FailedPrecondition if
  // the program calls raise_exception, and ResourceExhausted beyond a limit of `runtime`. They may
  // return OutOfRange for an integer beyond 64 bits.
  //
  // Returns Python's name of the type.
  virtual std::string type_name() const = 0;
  // Returns the attribute, or nullopt if there is none of that name.
  virtual absl::StatusOr<std::optional<JinjaValue>> Attribute(Runtime& runtime,
                                                              std::string_view name) {
    return std::optional<JinjaValue>();
  }
  virtual bool is_callable() const { return false; }
  // Calls the object and returns the result. Returns InvalidArgument if it is not callable.
  virtual absl::StatusOr<JinjaValue> Call(Runtime& runtime, CallValues values);
  // An iterator gives its items once: Next returns the next one, or nullopt at the end.
  virtual bool is_iterator() const { return false; }
  virtual absl::StatusOr<std::optional<JinjaValue>> Next(Runtime& runtime) {
    return std::optional<JinjaValue>();
  }
  // Returns len(), or nullopt if the object has none.
  virtual absl::StatusOr<std::optional<int64_t>> Length(Runtime& runtime) {
    return std::optional<int64_t>();
  }
  // Returns repr(), or nullopt if Python prints an address.
  virtual absl::StatusOr<std::optional<std::string>> Repr(Runtime& runtime) {
    return std::optional<std::string>();
  }

 private:
  const int depth_;
};

// Return the container of a value, valid while a copy of the value lives. REQUIRES: the value is of
// that kind.
inline const Text& TextOf(const JinjaValue& value) {
  return *std::get<std::shared_ptr<const Text>>(value.data());
}
inline const Sequence& SequenceOf(const JinjaValue& value) {
  return *std::get<std::shared_ptr<const Sequence>>(value.data());
}
inline const Dict& DictOf(const JinjaValue& value) {
  return *std::get<std::shared_ptr<const Dict>>(value.data());
}
inline Object& ObjectOf(const JinjaValue& value) {
  return *std::get<std::shared_ptr<Object>>(value.data());
}

inline bool IsSequence(const JinjaValue& value, SequenceKind kind) {
  return value.kind() == JinjaValue::Kind::kSequence && SequenceOf(value).kind == kind;
}
inline bool IsMarkup(const JinjaValue& value) {
  return value.is_string() && TextOf(value).is_markup;
}

// Returns the levels of containers of a value; 0 for a scalar.
int DepthOf(const JinjaValue& value);

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_CONTAINERS_H_

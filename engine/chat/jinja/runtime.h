// Runtime is the context of every operation of a rendering. It counts work and memory against the
// limits, and makes values. Cursor and the functions below it iterate over values.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_RUNTIME_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/chat/jinja/containers.h"
#include "engine/chat/jinja/jinja_program.h"
#include "engine/chat/jinja/jinja_value.h"

namespace megatrain::jinja {

using Result = absl::StatusOr<JinjaValue>;

// Returns InvalidArgument. The evaluator puts the line before the message.
absl::Status Error(std::string_view message);

// The state of one rendering. Used by one thread.
class Runtime {
 public:
  // `options` must outlive this.
  explicit Runtime(const JinjaOptions& options) : options_(options) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const JinjaOptions& options() const { return options_; }

  // Counts work. Returns false beyond steps_max; then CheckBudget() is an error and the rendering
  // must end. Work that cannot return an error may go on if it is small.
  bool Step(int64_t steps = 1) {
    steps_ += steps;
    return steps_ <= options_.limits.steps_max;
  }
  // Counts the reading or writing of `bytes` of text.
  bool StepBytes(size_t bytes) { return Step(1 + static_cast<int64_t>(bytes / 64)); }
  // Counts memory. Returns ResourceExhausted beyond bytes_max.
  absl::Status Charge(size_t bytes);
  // Counts the memory of a list of the text's lines, or of somewhat more parts.
  absl::Status ChargeLines(std::string_view text);
  // The bytes that may still be charged.
  size_t bytes_left() const { return options_.limits.bytes_max - bytes_; }
  // Returns ResourceExhausted beyond steps_max.
  absl::Status CheckBudget() const;
  // The number of values within one another that are printed now. Namespaces may hold one another
  // to any depth, so printing them must end somewhere.
  int printed_depth = 0;

  // Makers of values. They return ResourceExhausted beyond bytes_max, and InvalidArgument for
  // containers nested deeper than JinjaValue::kDepthMax. Those of texts, sequences and dicts count
  // steps, but only MakeText and MakeTexts return the error of CheckBudget().
  Result MakeText(std::string text, bool is_markup = false);
  Result MakeSequence(SequenceKind kind, std::vector<JinjaValue> items);
  Result MakeList(std::vector<JinjaValue> items) {
    return MakeSequence(SequenceKind::kList, std::move(items));
  }
  // Makes a list of texts.
  Result MakeTexts(const std::vector<std::string_view>& texts, bool is_markup);
  Result MakeDict(Dict dict);
  Result MakeObject(std::shared_ptr<Object> object);
  // Makes an undefined value.
  Result MakeUndefined(std::string message);

  // Adds or replaces an entry. Returns InvalidArgument for a key that Python cannot hash, and
  // ResourceExhausted beyond steps_max, after which the entry may be there. MakeDict charges the
  // memory.
  absl::Status SetEntry(Dict* dict, JinjaValue key, JinjaValue value);
  // Returns the value of `key`, valid until an entry is added, or nullptr. Returns InvalidArgument
  // for a key that Python cannot hash, and the error of CheckBudget(). Never fails for a key that
  // is text: its steps are counted, and the caller looks at CheckBudget().
  absl::StatusOr<const JinjaValue*> FindEntry(const Dict& dict, const JinjaValue& key);

  // Calls `release` when this is destroyed. A value that may refer to itself, such as a namespace,
  // must release there what it holds, because nothing else would free it.
  void KeepUntilEnd(std::function<void()> release) { releases_.push_back(std::move(release)); }
  ~Runtime() {
    for (const auto& release : releases_) release();
  }

 private:
  const JinjaOptions& options_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  std::vector<std::function<void()>> releases_;
};

// Visits the items of a value once, as iter() does: the characters of a text, the items of a list,
// the keys of a dict. An undefined value has none.
class Cursor {
 public:
  // Returns InvalidArgument for a value that is not iterable.
  static absl::StatusOr<Cursor> Over(JinjaValue value);
  // Sets `*item` and returns true, or returns false at the end. Returns ResourceExhausted beyond a
  // limit, and the errors of an iterator.
  absl::StatusOr<bool> Next(Runtime& runtime, JinjaValue* item);

 private:
  explicit Cursor(JinjaValue value) : value_(std::move(value)) {}
  JinjaValue value_;
  size_t at_ = 0;
};

// Returns the items of list(value), or the errors of Cursor.
absl::StatusOr<std::vector<JinjaValue>> ToItems(Runtime& runtime, const JinjaValue& value);

// Returns Python's name of a value's type: "str", "dict", ...
std::string TypeName(const JinjaValue& value);

// Makes a generator, or returns the errors of Runtime::MakeObject. `next` returns the generator's
// items one after another, and nullopt at the end. `source` is the value that `next` keeps. The
// generator counts as nested one level deeper than that value.
Result MakeGenerator(Runtime& runtime, const JinjaValue& source,
                     std::function<absl::StatusOr<std::optional<JinjaValue>>(Runtime&)> next);

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_RUNTIME_H_

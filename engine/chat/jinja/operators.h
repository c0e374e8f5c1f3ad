// Python's operators on values: truth, comparison, arithmetic, lookup. Those that take a Runtime
// also return ResourceExhausted beyond a limit.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_OPERATORS_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_OPERATORS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/chat/jinja/jinja_value.h"
#include "engine/chat/jinja/runtime.h"
#include "engine/chat/jinja/syntax/syntax_tree.h"

namespace megatrain::jinja {

// bool(value).
bool IsTrue(const JinjaValue& value);
// Returns true if hash(value) is possible.
bool IsHashable(const JinjaValue& value);

// a == b. If the steps run out it is false, and runtime.budget() is an error.
bool Equal(Runtime& runtime, const JinjaValue& a, const JinjaValue& b);
// a op b, for a comparison, `in` or `not in`. With <, <=, > and >= returns InvalidArgument for an
// undefined value and for values that have no order. With `in` and `not in` returns the errors of
// Contains.
absl::StatusOr<bool> Compare(Runtime& runtime, Operator op, const JinjaValue& a,
                             const JinjaValue& b);
// item in container. Returns InvalidArgument for a value that is no container, and for an item that
// Python does not look for in it (an int in text, a list in a dict).
absl::StatusOr<bool> Contains(Runtime& runtime, const JinjaValue& container,
                              const JinjaValue& item);

// a op b, for +, -, *, /, //, % or **. Returns InvalidArgument where Python raises (other types, a
// division by zero), and for an integer beyond 64 bits.
Result Arithmetic(Runtime& runtime, Operator op, const JinjaValue& a, const JinjaValue& b);
// -value, or +value unless `minus`, with the same errors.
Result Negate(const JinjaValue& value, bool minus);

// The value of an int or a bool; nullopt for others.
std::optional<int64_t> IntegerOf(const JinjaValue& value);
// The value of an int, a bool or a float; nullopt for others.
std::optional<double> NumberOf(const JinjaValue& value);

// object.name: the attribute, else the item. Undefined if there is neither, or if the attribute is
// one that the sandbox refuses. Returns InvalidArgument if `object` is undefined.
Result GetAttribute(Runtime& runtime, const JinjaValue& object, std::string_view name);
// object[key]: the item, else, if `key` is text, the attribute. Otherwise as GetAttribute.
Result GetItem(Runtime& runtime, const JinjaValue& object, const JinjaValue& key);
// object[start:stop:step]; an absent part is None. Unlike GetItem it returns InvalidArgument where
// Python raises: if the object has no slices, a part is no integer, or the step is 0.
Result GetSlice(Runtime& runtime, const JinjaValue& object, const JinjaValue& start,
                const JinjaValue& stop, const JinjaValue& step);
// The attribute, as getattr() finds it; nullopt if there is none. An attribute that the sandbox
// refuses is undefined. Returns InvalidArgument if `object` is undefined.
absl::StatusOr<std::optional<JinjaValue>> FindAttribute(Runtime& runtime, const JinjaValue& object,
                                                        std::string_view name);

// len(value); 0 for an undefined value. Returns InvalidArgument if the value has none.
absl::StatusOr<int64_t> LengthOf(Runtime& runtime, const JinjaValue& value);

// The error of using an undefined value.
absl::Status UndefinedError(const JinjaValue& value);

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_OPERATORS_H_

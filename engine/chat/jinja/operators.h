// Computes Python's operators on values: truth, comparison, arithmetic, lookup. Attributes are
// looked up in Jinja's sandbox, which refuses methods that change a list or dict, and names like
// __x__.
//
// Functions that take a Runtime and return a status also return ResourceExhausted beyond one of its
// limits, and the errors of an Object (containers.h) that they ask. If only the steps ran out, some
// of them return a value; Runtime::CheckBudget() is an error then.
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

// Returns bool(value).
bool IsTrue(const JinjaValue& value);
// Returns true if hash(value) is possible.
bool IsHashable(const JinjaValue& value);

// Returns a == b. If the steps run out, equal values may give false; runtime.CheckBudget() is then
// an error.
bool Equal(Runtime& runtime, const JinjaValue& a, const JinjaValue& b);
// Returns a op b, where `op` is a comparison, `in` or `not in`. For <, <=, > and >= returns
// InvalidArgument for an undefined value and for values that have no order. For `in` and `not in`
// returns the errors of Contains.
absl::StatusOr<bool> Compare(Runtime& runtime, Operator op, const JinjaValue& a,
                             const JinjaValue& b);
// Returns `item in container`. Returns InvalidArgument for a value that is no container, and for an
// item that Python does not look for in it (an int in text, a list in a dict).
absl::StatusOr<bool> Contains(Runtime& runtime, const JinjaValue& container,
                              const JinjaValue& item);

// Returns a op b, where `op` is +, -, *, /, //, % or **. Returns InvalidArgument where Python
// raises (other types, a division by zero), for an integer beyond 64 bits, and for a power that is
// not real.
Result Arithmetic(Runtime& runtime, Operator op, const JinjaValue& a, const JinjaValue& b);
// Returns -value if `minus`, else +value. Returns the errors of Arithmetic.
Result Negate(const JinjaValue& value, bool minus);

// Returns the value of an int or a bool, and nullopt for others.
std::optional<int64_t> IntegerOf(const JinjaValue& value);
// Returns the value of an int, a bool or a float, and nullopt for others.
std::optional<double> NumberOf(const JinjaValue& value);

// Returns object.name, which is the attribute or, if there is none, the item. Returns the undefined
// value if there is neither, or if the attribute is one that the sandbox refuses. Returns
// InvalidArgument if `object` is undefined.
Result GetAttribute(Runtime& runtime, const JinjaValue& object, std::string_view name);
// Returns object[key], which is the item or, if there is none and `key` is text, the attribute.
// Otherwise does as GetAttribute.
Result GetItem(Runtime& runtime, const JinjaValue& object, const JinjaValue& key);
// Returns object[start:stop:step], where an absent part is None. Unlike GetItem it returns
// InvalidArgument where Python raises: if the object has no slices, a part is no integer, or the
// step is 0. Returns it also if `object` is undefined.
Result GetSlice(Runtime& runtime, const JinjaValue& object, const JinjaValue& start,
                const JinjaValue& stop, const JinjaValue& step);
// Returns the attribute, as getattr() finds it, or nullopt if there is none. Returns the undefined
// value for an attribute that the sandbox refuses. Returns InvalidArgument if `object` is
// undefined.
absl::StatusOr<std::optional<JinjaValue>> FindAttribute(Runtime& runtime, const JinjaValue& object,
                                                        std::string_view name);

// Returns len(value), and 0 for an undefined value. Returns InvalidArgument if the value has none.
absl::StatusOr<int64_t> LengthOf(Runtime& runtime, const JinjaValue& value);

// Returns InvalidArgument, the error of using an undefined value. REQUIRES: `value` is undefined.
absl::Status UndefinedError(const JinjaValue& value);

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_OPERATORS_H_

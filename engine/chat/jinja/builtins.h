// Finds and calls the filters, tests, methods and functions that a program can call by name. A
// filter, test or method is an entry in a table with its signature and its code. Entries live as
// long as the process.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_BUILTINS_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_BUILTINS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "engine/chat/jinja/runtime.h"

namespace megatrain::jinja {

// A call of a builtin with its arguments in the order of the signature.
struct Call {
  Runtime& runtime;
  // The value that is filtered or tested, or whose method is called. Undefined for a function.
  const JinjaValue& self;
  std::vector<std::optional<JinjaValue>> arguments;
  CallValues rest;  // the arguments of a signature that ends with "*"

  bool has(size_t i) const { return arguments[i].has_value(); }
  // REQUIRES: has(i).
  const JinjaValue& operator[](size_t i) const { return *arguments[i]; }
  // Returns the argument, or the default if it is absent; TrueOr returns its truth.
  JinjaValue Or(size_t i, JinjaValue otherwise) const { return arguments[i].value_or(otherwise); }
  bool TrueOr(size_t i, bool otherwise) const;
  // Return the argument as an int or a text, or InvalidArgument if it is of another type. If it is
  // absent or None, IntOr returns `otherwise`, and TextOr nullopt. The texts are valid as long as
  // this object. TextAt REQUIRES has(i).
  absl::StatusOr<int64_t> IntOr(size_t i, int64_t otherwise) const;
  absl::StatusOr<std::string_view> TextAt(size_t i) const;
  absl::StatusOr<std::optional<std::string_view>> TextOr(size_t i) const;
};

// A filter, a test or a method.
struct Builtin {
  const char* name;
  // The names of the parameters after self, separated by spaces. "?" behind a name marks an
  // optional parameter; "_" before it, one that cannot be given by name. A "*" at the end takes all
  // further arguments. Examples: "old new count?", "_key _default?", "*".
  const char* parameters;
  Result (*function)(Call& call);
};

// Calls a builtin. Returns InvalidArgument for arguments that do not fit the signature, the errors
// of the function, which may be any of Object's (containers.h), or that of runtime.CheckBudget().
Result CallBuiltin(Runtime& runtime, const Builtin& builtin, const JinjaValue& self,
                   CallValues values);

// Return the filter or test of that name, or nullptr if there is none.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
// Returns the method of that name of the type of `self`, or nullptr if there is none.
const Builtin* FindMethod(const JinjaValue& self, std::string_view name);

// Returns a value that, when it is called, calls `method` with `self`. Returns the errors of
// Runtime::MakeObject. `method` must outlive the value.
Result MakeMethod(Runtime& runtime, const Builtin* method, JinjaValue self);

// Returns the function of that name (range, dict, namespace, ...) as a value that can be called.
// Returns the undefined value if there is none.
JinjaValue FindFunction(std::string_view name);

// Returns range(start, stop, step). Returns InvalidArgument for more than 100,000 items, as the
// sandbox of transformers does, and ResourceExhausted beyond a limit. REQUIRES: step is not 0.
Result MakeRange(Runtime& runtime, int64_t start, int64_t stop, int64_t step);

// The value that namespace() makes. {% set x.name = value %} changes no other kind of value.
class Namespace : public Object {
 public:
  std::string type_name() const override { return "TemplateNamespace"; }
  absl::StatusOr<std::optional<JinjaValue>> Attribute(Runtime& runtime,
                                                      std::string_view name) override;
  absl::StatusOr<std::optional<std::string>> Repr(Runtime& runtime) override;
  // Sets an attribute. Returns InvalidArgument for a name that begins with "_", and the errors of
  // Runtime::Charge and SetEntry.
  absl::Status Set(Runtime& runtime, JinjaValue name, JinjaValue value);
  // Removes all attributes, so that a namespace that holds itself can be freed.
  void Clear() { attributes_ = Dict(); }

 private:
  Dict attributes_;
  bool printing_ = false;
};

// The argument `attribute` of filters: "address.city", "items.0", an index, or a list "age,name".
class AttributePath {
 public:
  // Parses a path. None is the empty path, which leads to the item itself. With `fold`, Get returns
  // text in lower case. If `otherwise` is given and not None, it takes the place of an undefined
  // step. Returns InvalidArgument for more than 1000 steps, and OutOfRange for an index beyond 64
  // bits.
  static absl::StatusOr<AttributePath> Parse(const JinjaValue& attribute, bool fold,
                                             std::optional<JinjaValue> otherwise = std::nullopt);
  // Parses a text of paths separated by commas. Anything else is one path. Returns InvalidArgument
  // for more than 1000 paths, and the errors of Parse.
  static absl::StatusOr<std::vector<AttributePath>> ParseList(
      const std::optional<JinjaValue>& attribute, bool fold);

  // Returns what the path leads to from `item`, or the errors of GetItem (operators.h) and FoldKey.
  Result Get(Runtime& runtime, JinjaValue item) const;

 private:
  std::vector<JinjaValue> steps_;
  bool fold_ = false;
  std::optional<JinjaValue> otherwise_;
};

// Returns `value`, in lower case if it is text and `fold`, or the errors of Runtime::MakeText.
Result FoldKey(Runtime& runtime, const JinjaValue& value, bool fold);

// Return the parts of the tables of filters, tests and methods: each the entries of the file that
// defines it (scalar_filters.cc and so on; functions.cc has the methods of containers).
absl::Span<const Builtin> ScalarFilters();
absl::Span<const Builtin> SequenceFilters();
absl::Span<const Builtin> SelectionFilters();
absl::Span<const Builtin> ValueTests();
absl::Span<const Builtin> TextMethods();
absl::Span<const Builtin> ContainerMethods();  // their names begin with "dict.", "list.", "float."

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_BUILTINS_H_

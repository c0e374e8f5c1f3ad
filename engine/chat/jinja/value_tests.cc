// Jinja's tests, for `is`.
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/chat/jinja/value_text.h"

namespace megatrain::jinja {
namespace {

using Kind = JinjaValue::Kind;

bool IsKind(const JinjaValue& value, std::initializer_list<Kind> kinds) {
  for (const Kind kind : kinds) {
    if (value.kind() == kind) return true;
  }
  return false;
}

template <Kind... kinds>
Result IsOfKind(Call& call) {
  return JinjaValue::Bool(IsKind(call.self, {kinds...}));
}

template <bool expected>
Result IsBool(Call& call) {
  return JinjaValue::Bool(call.self.kind() == Kind::kBool && call.self.as_bool() == expected);
}

Result IsDefined(Call& call) { return JinjaValue::Bool(!call.self.is_undefined()); }

Result IsSequenceLike(Call& call) {
  const bool indexable =
      call.self.kind() == Kind::kSequence && SequenceOf(call.self).kind < SequenceKind::kKeys;
  // An undefined value has a length and refuses indexing only when it is used.
  return JinjaValue::Bool(indexable || call.self.is_dict() || call.self.is_string() ||
                          call.self.is_undefined());
}

Result IsIterable(Call& call) {
  const bool iterator = call.self.kind() == Kind::kObject && ObjectOf(call.self).is_iterator();
  return JinjaValue::Bool(iterator || IsKind(call.self, {Kind::kUndefined, Kind::kString,
                                                         Kind::kSequence, Kind::kDict}));
}

// Undefined values have a __call__.
Result IsCallable(Call& call) {
  const bool callable = call.self.kind() == Kind::kObject && ObjectOf(call.self).is_callable();
  return JinjaValue::Bool(callable || call.self.is_undefined());
}

Result IsEscaped(Call& call) { return JinjaValue::Bool(IsMarkup(call.self)); }

// Two values are the same object if they share one, or are scalars of one type with one value.
Result IsSame(Call& call) {
  const JinjaValue &a = call.self, &b = call[0];
  if (a.kind() != b.kind()) return JinjaValue::Bool(false);
  if (a.data() == b.data()) return JinjaValue::Bool(true);
  return JinjaValue::Bool(a.is_string() && a.as_string() == b.as_string());
}

// value % divisor == rest.
Result RemainderIs(Call& call, const JinjaValue& divisor, int64_t rest) {
  MT_ASSIGN_OR_RETURN(const JinjaValue value,
                      Arithmetic(call.runtime, Operator::kModulo, call.self, divisor));
  return JinjaValue::Bool(Equal(call.runtime, value, JinjaValue::Int(rest)));
}
Result IsOdd(Call& call) { return RemainderIs(call, JinjaValue::Int(2), 1); }
Result IsEven(Call& call) { return RemainderIs(call, JinjaValue::Int(2), 0); }
Result IsDivisible(Call& call) { return RemainderIs(call, call[0], 0); }

template <python::TextClass text_class>
Result IsCased(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string text, ToText(call.runtime, call.self));
  return JinjaValue::Bool(python::IsOfClass(text, text_class));
}

template <Operator op>
Result Compares(Call& call) {
  MT_ASSIGN_OR_RETURN(const bool holds, Compare(call.runtime, op, call.self, call[0]));
  return JinjaValue::Bool(holds);
}

template <const Builtin* (*find)(std::string_view)>
Result IsNameOf(Call& call) {
  if (!IsHashable(call.self)) return Error("unhashable type");
  return JinjaValue::Bool(call.self.is_string() && find(call.self.as_string()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"odd", "", IsOdd},
    {"even", "", IsEven},
    {"divisibleby", "num", IsDivisible},
    {"defined", "", IsDefined},
    {"undefined", "", IsOfKind<Kind::kUndefined>},
    {"filter", "", IsNameOf<FindFilter>},
    {"test", "", IsNameOf<FindTest>},
    {"none", "", IsOfKind<Kind::kNone>},
    {"boolean", "", IsOfKind<Kind::kBool>},
    {"false", "", IsBool<false>},
    {"true", "", IsBool<true>},
    {"integer", "", IsOfKind<Kind::kInt>},
    {"float", "", IsOfKind<Kind::kFloat>},
    {"lower", "", IsCased<python::TextClass::kLower>},
    {"upper", "", IsCased<python::TextClass::kUpper>},
    {"string", "", IsOfKind<Kind::kString>},
    {"mapping", "", IsOfKind<Kind::kDict>},
    {"number", "", IsOfKind<Kind::kBool, Kind::kInt, Kind::kFloat>},
    {"sequence", "", IsSequenceLike},
    {"iterable", "", IsIterable},
    {"callable", "", IsCallable},
    {"sameas", "other", IsSame},
    {"escaped", "", IsEscaped},
    {"in", "seq", Compares<Operator::kIn>},
    {"==", "_other", Compares<Operator::kEqual>},
    {"eq", "_other", Compares<Operator::kEqual>},
    {"equalto", "_other", Compares<Operator::kEqual>},
    {"!=", "_other", Compares<Operator::kNotEqual>},
    {"ne", "_other", Compares<Operator::kNotEqual>},
    {">", "_other", Compares<Operator::kGreater>},
    {"gt", "_other", Compares<Operator::kGreater>},
    {"greaterthan", "_other", Compares<Operator::kGreater>},
    {"ge", "_other", Compares<Operator::kGreaterEqual>},
    {">=", "_other", Compares<Operator::kGreaterEqual>},
    {"<", "_other", Compares<Operator::kLess>},
    {"lt", "_other", Compares<Operator::kLess>},
    {"lessthan", "_other", Compares<Operator::kLess>},
    {"<=", "_other", Compares<Operator::kLessEqual>},
    {"le", "_other", Compares<Operator::kLessEqual>},
};

}  // namespace

absl::Span<const Builtin> ValueTests() { return kTests; }

}  // namespace megatrain::jinja

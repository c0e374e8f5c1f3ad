// Truth, equality, order and membership, of operators.h.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/unicode_text.h"

namespace megatrain::jinja {
namespace {

using Kind = JinjaValue::Kind;

bool IsNumber(const JinjaValue& value) {
  return value.kind() == Kind::kBool || value.kind() == Kind::kInt || value.kind() == Kind::kFloat;
}

// Compares an integer with a float exactly: -1, 0 or 1, or 2 for nan.
int CompareMixed(int64_t a, double b) {
  if (std::isnan(b)) return 2;
  if (b >= 9223372036854775808.0) return -1;
  if (b < -9223372036854775808.0) return 1;
  const int64_t whole = static_cast<int64_t>(b);
  if (a != whole) return a < whole ? -1 : 1;
  const double part = b - static_cast<double>(whole);
  return part > 0 ? -1 : part < 0 ? 1 : 0;
}

// -1, 0 or 1, or 2 if one is nan.
int CompareNumbers(const JinjaValue& a, const JinjaValue& b) {
  const std::optional<int64_t> left = IntegerOf(a), right = IntegerOf(b);
  if (left.has_value() && right.has_value()) return *left < *right ? -1 : *left > *right;
  if (left.has_value()) return CompareMixed(*left, b.as_float());
  if (right.has_value()) {
    const int order = CompareMixed(*right, a.as_float());
    return order == 2 ? 2 : -order;
  }
  if (std::isnan(a.as_float()) || std::isnan(b.as_float())) return 2;
  return a.as_float() < b.as_float() ? -1 : a.as_float() > b.as_float();
}

bool Holds(Operator op, int order) {
  if (order == 2) return false;
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

const char* OperatorText(Operator op) {
  switch (op) {
    case Operator::kLess:
      return "<";
    case Operator::kLessEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    default:
      return ">=";
  }
}

bool IsKeyView(const Sequence& sequence) {
  return sequence.kind == SequenceKind::kKeys || sequence.kind == SequenceKind::kItems;
}

bool EqualSequences(Runtime& runtime, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  // Views of keys and items compare as sets, views of values not at all.
  if (IsKeyView(a) && IsKeyView(b)) {
    if (a.items.size() != b.items.size()) return false;
    for (const JinjaValue& item : a.items) {
      bool found = false;
      for (size_t i = 0; i < b.items.size() && !found; ++i)
        found = Equal(runtime, item, b.items[i]);
      if (!found) return false;
    }
    return true;
  }
  if (a.kind != b.kind || a.kind == SequenceKind::kValues || a.items.size() != b.items.size()) {
    return false;
  }
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!Equal(runtime, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool EqualDicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const absl::StatusOr<const JinjaValue*> other = runtime.FindEntry(b, key);
    if (!other.ok() || *other == nullptr || !Equal(runtime, value, **other)) return false;
  }
  return true;
}

}  // namespace

bool IsTrue(const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_float() != 0;
    case Kind::kString:
      return !value.as_string().empty();
    case Kind::kSequence:
      return !SequenceOf(value).items.empty();
    case Kind::kDict:
      return !DictOf(value).entries.empty();
    case Kind::kObject:
      return true;
  }
  return false;
}

bool IsHashable(const JinjaValue& value) {
  if (value.kind() == Kind::kDict) return false;
  if (value.kind() != Kind::kSequence) return true;
  const Sequence& sequence = SequenceOf(value);
  if (sequence.kind == SequenceKind::kRange || sequence.kind == SequenceKind::kValues) return true;
  return sequence.kind == SequenceKind::kTuple && sequence.hashable;
}

bool Equal(Runtime& runtime, const JinjaValue& a, const JinjaValue& b) {
  if (!runtime.Step()) return false;
  if (IsNumber(a) && IsNumber(b)) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      runtime.StepBytes(std::min(a.as_string().size(), b.as_string().size()));
      return a.as_string() == b.as_string();
    case Kind::kSequence:
      return EqualSequences(runtime, SequenceOf(a), SequenceOf(b));
    case Kind::kDict:
      return EqualDicts(runtime, DictOf(a), DictOf(b));
    case Kind::kObject:
      return &ObjectOf(a) == &ObjectOf(b);
    default:
      return true;  // undefined and none
  }
}

absl::StatusOr<bool> Compare(Runtime& runtime, Operator op, const JinjaValue& a,
                             const JinjaValue& b) {
  if (op == Operator::kIn) return Contains(runtime, b, a);
  if (op == Operator::kNotIn) {
    MT_ASSIGN_OR_RETURN(const bool contains, Contains(runtime, b, a));
    return !contains;
  }
  if (op == Operator::kEqual || op == Operator::kNotEqual) {
    const bool equal = Equal(runtime, a, b);
    MT_RETURN_IF_ERROR(runtime.CheckBudget());
    return equal == (op == Operator::kEqual);
  }
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (IsNumber(a) && IsNumber(b)) return Holds(op, CompareNumbers(a, b));
  if (a.is_string() && b.is_string()) {
    runtime.StepBytes(std::min(a.as_string().size(), b.as_string().size()));
    // UTF-8 sorts as code points do.
    const int order = a.as_string().compare(b.as_string());
    return Holds(op, order < 0 ? -1 : order > 0);
  }
  const bool lists = IsSequence(a, SequenceKind::kList) && IsSequence(b, SequenceKind::kList);
  const bool tuples = IsSequence(a, SequenceKind::kTuple) && IsSequence(b, SequenceKind::kTuple);
  if (!lists && !tuples) {
    return Error(absl::StrCat("'", OperatorText(op), "' not supported between instances of '",
                              TypeName(a), "' and '", TypeName(b), "'"));
  }
  const auto& left = SequenceOf(a).items;
  const auto& right = SequenceOf(b).items;
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (!Equal(runtime, left[i], right[i])) {
      MT_RETURN_IF_ERROR(runtime.CheckBudget());
      return Compare(runtime, op, left[i], right[i]);
    }
  }
  return Holds(op, left.size() < right.size() ? -1 : left.size() > right.size());
}

absl::StatusOr<bool> Contains(Runtime& runtime, const JinjaValue& container,
                              const JinjaValue& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return Error(
          absl::StrCat("'in <string>' requires string as left operand, not ", TypeName(item)));
    }
    runtime.StepBytes(container.as_string().size());
    return python::FindFirst(container.as_string(), item.as_string()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    MT_ASSIGN_OR_RETURN(const JinjaValue* const found, runtime.FindEntry(DictOf(container), item));
    return found != nullptr;
  }
  MT_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(container));
  JinjaValue other;
  while (true) {
    MT_ASSIGN_OR_RETURN(const bool more, cursor.Next(runtime, &other));
    if (!more) return false;
    if (Equal(runtime, other, item)) return true;
    MT_RETURN_IF_ERROR(runtime.CheckBudget());
  }
}

}  // namespace megatrain::jinja

// Arithmetic, of operators.h.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/chat/jinja/value_text.h"

namespace megatrain::jinja {
namespace {

using Kind = JinjaValue::Kind;

absl::Status Overflow() { return Error("an integer does not fit in 64 bits"); }
absl::Status ZeroDivision() { return Error("division by zero"); }

const char* OperatorText(Operator op) {
  static constexpr const char* kTexts[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kTexts[static_cast<int>(op)];
}

// a ** b for b >= 0.
Result IntegerPower(int64_t a, int64_t b) {
  int64_t result = 1;
  while (b > 0) {
    if ((b & 1) != 0 && __builtin_mul_overflow(result, a, &result)) return Overflow();
    b >>= 1;
    if (b > 0 && __builtin_mul_overflow(a, a, &a)) return Overflow();
  }
  return JinjaValue::Int(result);
}

Result FloatOperation(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return JinjaValue::Float(a + b);
    case Operator::kSubtract:
      return JinjaValue::Float(a - b);
    case Operator::kMultiply:
      return JinjaValue::Float(a * b);
    case Operator::kDivide:
      if (b == 0) return ZeroDivision();
      return JinjaValue::Float(a / b);
    case Operator::kPower: {
      if (a == 0 && b < 0) return Error("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) return Error("the power is not real");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return Error("the power is out of range");
      }
      return JinjaValue::Float(result);
    }
    default:
      break;
  }
  if (b == 0) return ZeroDivision();
  // As Python's divmod: the rest has the sign of b.
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (op == Operator::kModulo) return JinjaValue::Float(rest);
  if (quotient == 0) return JinjaValue::Float(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return JinjaValue::Float(quotient - floor > 0.5 ? floor + 1 : floor);
}

Result IntegerOperation(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower:
      if (b >= 0) return IntegerPower(a, b);
      return FloatOperation(op, static_cast<double>(a), static_cast<double>(b));
    case Operator::kDivide:
      return FloatOperation(op, static_cast<double>(a), static_cast<double>(b));
    default: {
      if (b == 0) return ZeroDivision();
      if (a == std::numeric_limits<int64_t>::min() && b == -1) {
        if (op == Operator::kFloorDivide) return Overflow();
        return JinjaValue::Int(0);
      }
      int64_t quotient = a / b, rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        --quotient;
        rest += b;
      }
      return JinjaValue::Int(op == Operator::kModulo ? rest : quotient);
    }
  }
  if (overflow) return Overflow();
  return JinjaValue::Int(result);
}

// value * count of a text, a list or a tuple.
Result Repeat(Runtime& runtime, const JinjaValue& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const auto too_big = [&](size_t bytes) {
    return bytes > 0 && static_cast<uint64_t>(count) > runtime.bytes_left() / bytes;
  };
  if (value.is_string()) {
    const std::string_view text = value.as_string();
    if (too_big(text.size())) return runtime.Charge(std::numeric_limits<int64_t>::max());
    std::string result;
    result.reserve(text.size() * count);
    for (int64_t i = 0; i < count && !text.empty(); ++i) result += text;
    return runtime.MakeText(std::move(result), IsMarkup(value));
  }
  const Sequence& sequence = SequenceOf(value);
  if (too_big(sequence.items.size() * sizeof(JinjaValue))) {
    return runtime.Charge(std::numeric_limits<int64_t>::max());
  }
  std::vector<JinjaValue> items;
  for (int64_t i = 0; i < count && !sequence.items.empty(); ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return runtime.MakeSequence(sequence.kind, std::move(items));
}

Result AddTexts(Runtime& runtime, const JinjaValue& a, const JinjaValue& b) {
  const bool markup = IsMarkup(a) || IsMarkup(b);
  const auto part = [markup](const JinjaValue& value) {
    return markup && !IsMarkup(value) ? python::EscapeHtml(value.as_string())
                                      : std::string(value.as_string());
  };
  if (a.as_string().size() + b.as_string().size() > runtime.bytes_left()) {
    return runtime.Charge(a.as_string().size() + b.as_string().size());
  }
  return runtime.MakeText(part(a) + part(b), markup);
}

bool IsListOrTuple(const JinjaValue& value) {
  return IsSequence(value, SequenceKind::kList) || IsSequence(value, SequenceKind::kTuple);
}

}  // namespace

std::optional<int64_t> IntegerOf(const JinjaValue& value) {
  if (value.kind() == Kind::kInt) return value.as_int();
  if (value.kind() == Kind::kBool) return value.as_bool() ? 1 : 0;
  return std::nullopt;
}

std::optional<double> NumberOf(const JinjaValue& value) {
  if (value.kind() == Kind::kFloat) return value.as_float();
  const std::optional<int64_t> integer = IntegerOf(value);
  if (!integer.has_value()) return std::nullopt;
  return static_cast<double>(*integer);
}

Result Arithmetic(Runtime& runtime, Operator op, const JinjaValue& a, const JinjaValue& b) {
  const std::optional<int64_t> left = IntegerOf(a), right = IntegerOf(b);
  if (left.has_value() && right.has_value()) return IntegerOperation(op, *left, *right);
  const std::optional<double> x = NumberOf(a), y = NumberOf(b);
  if (x.has_value() && y.has_value()) return FloatOperation(op, *x, *y);
  if (op == Operator::kModulo && a.is_string()) return FormatPrintf(runtime, a, b);
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (op == Operator::kAdd) {
    if (a.is_string() && b.is_string()) return AddTexts(runtime, a, b);
    if (IsListOrTuple(a) && IsListOrTuple(b) && SequenceOf(a).kind == SequenceOf(b).kind) {
      std::vector<JinjaValue> items = SequenceOf(a).items;
      const std::vector<JinjaValue>& more = SequenceOf(b).items;
      items.insert(items.end(), more.begin(), more.end());
      return runtime.MakeSequence(SequenceOf(a).kind, std::move(items));
    }
  }
  if (op == Operator::kMultiply) {
    if (right.has_value() && (a.is_string() || IsListOrTuple(a))) return Repeat(runtime, a, *right);
    if (left.has_value() && (b.is_string() || IsListOrTuple(b))) return Repeat(runtime, b, *left);
  }
  if (op == Operator::kAdd && (a.is_string() || IsListOrTuple(a))) {
    return Error(absl::StrCat("can only concatenate ", TypeName(a), " (not \"", TypeName(b),
                              "\") to ", TypeName(a)));
  }
  return Error(absl::StrCat("unsupported operand type(s) for ", OperatorText(op), ": '",
                            TypeName(a), "' and '", TypeName(b), "'"));
}

Result Negate(const JinjaValue& value, bool minus) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.kind() == Kind::kFloat) return minus ? JinjaValue::Float(-value.as_float()) : value;
  const std::optional<int64_t> integer = IntegerOf(value);
  if (!integer.has_value()) {
    return Error(absl::StrCat("bad operand type for unary ", minus ? "-" : "+", ": '",
                              TypeName(value), "'"));
  }
  if (!minus) return JinjaValue::Int(*integer);
  if (*integer == std::numeric_limits<int64_t>::min()) return Overflow();
  return JinjaValue::Int(-*integer);
}

}  // namespace megatrain::jinja

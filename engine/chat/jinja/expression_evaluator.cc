// Expressions, of evaluator.h.
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/evaluator.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/value_text.h"

namespace megatrain::jinja {

using Kind = Expression::Kind;

Result Evaluator::Evaluate(const Expression& expression) {
  if (!runtime_.Step()) return runtime_.CheckBudget();
  if (depth_ >= runtime_.options().limits.depth_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", depth_, " evaluations within one another"));
  }
  line_ = expression.line;
  ++depth_;
  Result result = EvaluateNode(expression);
  --depth_;
  return result;
}

Result Evaluator::EvaluateNode(const Expression& expression) {
  const auto& parts = expression.parts;
  switch (expression.kind) {
    case Kind::kLiteral:
      return program_.literals[expression.index];
    case Kind::kName:
      return EvaluateName(expression.index);
    case Kind::kList:
    case Kind::kTuple: {
      MT_ASSIGN_OR_RETURN(std::vector<JinjaValue> items, EvaluateAll(parts));
      const bool list = expression.kind == Kind::kList;
      return runtime_.MakeSequence(list ? SequenceKind::kList : SequenceKind::kTuple,
                                   std::move(items));
    }
    case Kind::kDict:
      return EvaluateDict(expression);
    case Kind::kNot: {
      MT_ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*parts[0]));
      return JinjaValue::Bool(!IsTrue(value));
    }
    case Kind::kNegate:
    case Kind::kPlus: {
      MT_ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*parts[0]));
      return Negate(value, expression.kind == Kind::kNegate);
    }
    case Kind::kAnd:
    case Kind::kOr: {
      MT_ASSIGN_OR_RETURN(JinjaValue left, Evaluate(*parts[0]));
      if (IsTrue(left) == (expression.kind == Kind::kOr)) return left;
      return Evaluate(*parts[1]);
    }
    case Kind::kArithmetic: {
      MT_ASSIGN_OR_RETURN(const JinjaValue left, Evaluate(*parts[0]));
      MT_ASSIGN_OR_RETURN(const JinjaValue right, Evaluate(*parts[1]));
      return Arithmetic(runtime_, expression.operators[0], left, right);
    }
    case Kind::kCompare:
      return EvaluateCompare(expression);
    case Kind::kConcat:
      return EvaluateConcat(expression);
    case Kind::kConditional:
      return EvaluateConditional(expression);
    case Kind::kAttribute: {
      MT_ASSIGN_OR_RETURN(const JinjaValue object, Evaluate(*parts[0]));
      return GetAttribute(runtime_, object, expression.text);
    }
    case Kind::kItem:
      return EvaluateItem(expression);
    case Kind::kCall:
      return EvaluateCall(expression, nullptr);
    case Kind::kFilter:
      return EvaluateFilter(expression);
    case Kind::kTest:
      return EvaluateTest(expression);
    case Kind::kSlice:
      break;
  }
  return Error("a slice outside of brackets, or beside another index");
}

Result Evaluator::EvaluateName(int name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [other, value] : scope->variables) {
      if (other == name) return value;
    }
  }
  if (!context_[name].is_undefined()) return context_[name];
  return runtime_.MakeUndefined(absl::StrCat("'", program_.syntax.names[name], "' is undefined"));
}

absl::StatusOr<std::vector<JinjaValue>> Evaluator::EvaluateAll(
    const std::vector<ExpressionPtr>& parts) {
  std::vector<JinjaValue> values;
  values.reserve(parts.size());
  for (const ExpressionPtr& part : parts) {
    MT_ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*part));
    values.push_back(std::move(value));
  }
  return values;
}

Result Evaluator::EvaluateDict(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    MT_ASSIGN_OR_RETURN(JinjaValue key, Evaluate(*expression.parts[i]));
    MT_ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*expression.parts[i + 1]));
    MT_RETURN_IF_ERROR(runtime_.SetEntry(&dict, std::move(key), std::move(value)));
  }
  return runtime_.MakeDict(std::move(dict));
}

Result Evaluator::EvaluateCompare(const Expression& expression) {
  MT_ASSIGN_OR_RETURN(JinjaValue left, Evaluate(*expression.parts[0]));
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    MT_ASSIGN_OR_RETURN(JinjaValue right, Evaluate(*expression.parts[i + 1]));
    MT_ASSIGN_OR_RETURN(const bool holds, Compare(runtime_, expression.operators[i], left, right));
    if (!holds) return JinjaValue::Bool(false);
    left = std::move(right);
  }
  return JinjaValue::Bool(true);
}

Result Evaluator::EvaluateConcat(const Expression& expression) {
  std::string text;
  for (const ExpressionPtr& part : expression.parts) {
    MT_ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*part));
    if (value.is_string()) {
      text += value.as_string();
    } else {
      MT_ASSIGN_OR_RETURN(const std::string more, ToText(runtime_, value));
      text += more;
    }
    if (text.size() > runtime_.bytes_left()) return runtime_.Charge(text.size());
  }
  return runtime_.MakeText(std::move(text));
}

Result Evaluator::EvaluateConditional(const Expression& expression) {
  MT_ASSIGN_OR_RETURN(const JinjaValue condition, Evaluate(*expression.parts[0]));
  if (IsTrue(condition)) return Evaluate(*expression.parts[1]);
  if (expression.parts[2] != nullptr) return Evaluate(*expression.parts[2]);
  return runtime_.MakeUndefined(
      absl::StrCat("the inline if-expression on line ", expression.line,
                   " evaluated to false and no else section was defined."));
}

Result Evaluator::EvaluateItem(const Expression& expression) {
  MT_ASSIGN_OR_RETURN(const JinjaValue object, Evaluate(*expression.parts[0]));
  const Expression& key = *expression.parts[1];
  if (key.kind != Kind::kSlice) {
    MT_ASSIGN_OR_RETURN(const JinjaValue index, Evaluate(key));
    return GetItem(runtime_, object, index);
  }
  JinjaValue bounds[3] = {JinjaValue::None(), JinjaValue::None(), JinjaValue::None()};
  for (int i = 0; i < 3; ++i) {
    if (key.parts[i] == nullptr) continue;
    MT_ASSIGN_OR_RETURN(bounds[i], Evaluate(*key.parts[i]));
  }
  return GetSlice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

absl::StatusOr<CallValues> Evaluator::EvaluateArguments(const CallArguments& arguments) {
  CallValues values;
  MT_ASSIGN_OR_RETURN(values.positional, EvaluateAll(arguments.positional));
  for (const auto& [name, argument] : arguments.named) {
    MT_ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*argument));
    values.named.emplace_back(name, std::move(value));
  }
  if (arguments.more_positional != nullptr) {
    MT_ASSIGN_OR_RETURN(const JinjaValue more, Evaluate(*arguments.more_positional));
    MT_ASSIGN_OR_RETURN(const std::vector<JinjaValue> items, ToItems(runtime_, more));
    values.positional.insert(values.positional.end(), items.begin(), items.end());
  }
  if (arguments.more_named != nullptr) {
    MT_ASSIGN_OR_RETURN(const JinjaValue more, Evaluate(*arguments.more_named));
    if (!more.is_dict()) return Error("argument after ** must be a mapping");
    for (const auto& [key, value] : DictOf(more).entries) {
      if (!key.is_string()) return Error("keywords must be strings");
      for (const auto& [name, other] : values.named) {
        if (!runtime_.Step()) return runtime_.CheckBudget();
        if (name == key.as_string()) {
          return Error(absl::StrCat("got multiple values for keyword argument '", name, "'"));
        }
      }
      values.named.emplace_back(std::string(key.as_string()), value);
    }
  }
  return values;
}

Result Evaluator::EvaluateCall(const Expression& expression, JinjaValue* caller) {
  MT_ASSIGN_OR_RETURN(const JinjaValue callee, Evaluate(*expression.parts[0]));
  MT_ASSIGN_OR_RETURN(CallValues values, EvaluateArguments(*expression.arguments));
  if (caller != nullptr) values.named.emplace_back("caller", std::move(*caller));
  line_ = expression.line;
  if (callee.is_undefined()) return UndefinedError(callee);
  if (callee.kind() != JinjaValue::Kind::kObject) {
    return Error(absl::StrCat("'", TypeName(callee), "' object is not callable"));
  }
  return ObjectOf(callee).Call(runtime_, std::move(values));
}

Result Evaluator::EvaluateFilter(const Expression& expression) {
  JinjaValue input = block_text_;
  if (expression.parts[0] != nullptr) {
    MT_ASSIGN_OR_RETURN(input, Evaluate(*expression.parts[0]));
  }
  MT_ASSIGN_OR_RETURN(CallValues values, EvaluateArguments(*expression.arguments));
  line_ = expression.line;
  const Builtin* const filter = FindFilter(expression.text);
  if (filter == nullptr) {
    return Error(absl::StrCat("there is no filter named '", expression.text, "'"));
  }
  return CallBuiltin(runtime_, *filter, input, std::move(values));
}

Result Evaluator::EvaluateTest(const Expression& expression) {
  MT_ASSIGN_OR_RETURN(const JinjaValue input, Evaluate(*expression.parts[0]));
  MT_ASSIGN_OR_RETURN(CallValues values, EvaluateArguments(*expression.arguments));
  line_ = expression.line;
  const Builtin* const test = FindTest(expression.text);
  if (test == nullptr) {
    return Error(absl::StrCat("there is no test named '", expression.text, "'"));
  }
  return CallBuiltin(runtime_, *test, input, std::move(values));
}

}  // namespace megatrain::jinja

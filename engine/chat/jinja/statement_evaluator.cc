// Statements, of evaluator.h.
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/evaluator.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/value_text.h"

namespace megatrain::jinja {

using Kind = Statement::Kind;

void Scope::Set(int name, JinjaValue value) {
  for (auto& [other, old] : variables) {
    if (other == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Evaluator::Evaluator(const Program& program, const JinjaVariables& variables, Runtime* runtime)
    : program_(program),
      runtime_(*runtime),
      context_(program.functions),
      root_(std::make_shared<Scope>(nullptr)),
      scope_(root_),
      out_(&rendered_.text) {
  for (const auto& [name, value] : variables) {
    const std::vector<std::string>& names = program.syntax.names;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) context_[i] = value;
    }
  }
}

absl::StatusOr<JinjaRendered> Evaluator::Render() {
  const absl::Status status = Run(program_.syntax.body);
  for (const auto& [begin, text] : captured_blocks_) {
    const std::string_view wrote = text.as_string();
    rendered_.generation_moved |= rendered_.text.compare(begin, wrote.size(), wrote) != 0;
  }
  if (status.ok()) return std::move(rendered_);
  // The message of raise_exception is passed on as it is.
  if (status.code() == absl::StatusCode::kFailedPrecondition) return status;
  const bool limit = status.code() == absl::StatusCode::kResourceExhausted;
  return absl::Status(
      limit ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInvalidArgument,
      absl::StrCat("line ", line_, ": ", status.message()));
}

absl::Status Evaluator::Run(const Body& body) {
  for (const auto& statement : body) {
    if (!runtime_.Step()) return runtime_.CheckBudget();
    if (depth_ >= runtime_.options().limits.depth_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", depth_, " evaluations within one another"));
    }
    line_ = statement->line;
    ++depth_;
    const absl::Status status = RunStatement(*statement);
    --depth_;
    MT_RETURN_IF_ERROR(status);
    if (flow_ != Flow::kNone) break;
  }
  return absl::OkStatus();
}

absl::Status Evaluator::RunStatement(const Statement& statement) {
  switch (statement.kind) {
    case Kind::kData:
      return Append(statement.text);
    case Kind::kOutput: {
      MT_ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*statement.expression));
      return Output(value);
    }
    case Kind::kPrint: {
      MT_ASSIGN_OR_RETURN(const std::vector<JinjaValue> values, EvaluateAll(statement.values));
      for (const JinjaValue& value : values) MT_RETURN_IF_ERROR(Output(value));
      return absl::OkStatus();
    }
    case Kind::kIf:
      return RunIf(statement);
    case Kind::kFor:
      return RunFor(statement);
    case Kind::kSet:
      return RunSet(statement);
    case Kind::kSetBlock:
      return RunSetBlock(statement);
    case Kind::kMacro: {
      MT_ASSIGN_OR_RETURN(JinjaValue macro, MakeMacro(*statement.macro));
      return Assign(statement.targets[0], macro);
    }
    case Kind::kCallBlock:
      return RunCallBlock(statement);
    case Kind::kFilterBlock:
      return RunFilterBlock(statement);
    case Kind::kWith:
      return RunWith(statement);
    case Kind::kBlock:
      return RunBlock(statement);
    case Kind::kGeneration:
      return RunGeneration(statement);
    case Kind::kAutoescape:
      return RunAutoescape(statement);
    case Kind::kBreak:
      flow_ = Flow::kBreak;
      return absl::OkStatus();
    case Kind::kContinue:
      flow_ = Flow::kContinue;
      return absl::OkStatus();
    case Kind::kUnavailable:
      break;
  }
  return Error(
      absl::StrCat("{% ", statement.text, " %} needs another template, and there is none"));
}

absl::Status Evaluator::Append(std::string_view text) {
  runtime_.StepBytes(text.size());
  MT_RETURN_IF_ERROR(runtime_.Charge(text.size()));
  const int64_t limit = runtime_.options().limits.output_bytes_max;
  if (static_cast<int64_t>(out_->size() + text.size()) > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the program wrote more than ", limit, " bytes"));
  }
  out_->append(text);
  return absl::OkStatus();
}

absl::Status Evaluator::Output(const JinjaValue& value) {
  if (value.is_string()) return Append(value.as_string());
  MT_ASSIGN_OR_RETURN(const std::string text, ToText(runtime_, value));
  return Append(text);
}

absl::Status Evaluator::AppendResult(const JinjaValue& value) {
  if (value.is_string()) return Append(value.as_string());
  return Error(absl::StrCat("a block gave a '", TypeName(value), "' and not text"));
}

Result Evaluator::Capture(absl::FunctionRef<absl::Status()> write) {
  std::string buffer;
  std::string* const before = std::exchange(out_, &buffer);
  const absl::Status status = write();
  out_ = before;
  MT_RETURN_IF_ERROR(status);
  return runtime_.MakeText(std::move(buffer));
}

absl::Status Evaluator::RunInner(const Body& body) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(outer);
  const absl::Status status = Run(body);
  scope_ = outer;
  return status;
}

absl::Status Evaluator::RunIf(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    MT_ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*condition));
    if (IsTrue(value)) return Run(body);
  }
  return Run(statement.else_body);
}

absl::Status Evaluator::RunSet(const Statement& statement) {
  MT_ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*statement.expression));
  return Assign(statement.targets[0], value);
}

absl::Status Evaluator::Assign(const Target& target, const JinjaValue& value) {
  if (target.is_tuple) {
    MT_ASSIGN_OR_RETURN(const std::vector<JinjaValue> items, ToItems(runtime_, value));
    if (items.size() != target.parts.size()) {
      return Error(
          absl::StrCat("expected ", target.parts.size(), " values to unpack, got ", items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      MT_RETURN_IF_ERROR(Assign(target.parts[i], items[i]));
    }
    return absl::OkStatus();
  }
  if (target.attribute.empty()) {
    scope_->Set(target.name, value);
    return absl::OkStatus();
  }
  MT_ASSIGN_OR_RETURN(const JinjaValue object, EvaluateName(target.name));
  Namespace* const space = object.kind() == JinjaValue::Kind::kObject
                               ? dynamic_cast<Namespace*>(&ObjectOf(object))
                               : nullptr;
  if (space == nullptr) return Error("cannot assign attribute on non-namespace object");
  return space->Set(runtime_, JinjaValue::String(target.attribute), value);
}

absl::Status Evaluator::RunSetBlock(const Statement& statement) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(outer);
  Result value = Capture([&] { return Run(statement.body); });
  if (value.ok() && flow_ == Flow::kNone && statement.expression != nullptr) {
    block_text_ = *std::move(value);
    value = Evaluate(*statement.expression);
  }
  scope_ = outer;
  MT_RETURN_IF_ERROR(value.status());
  if (flow_ != Flow::kNone) return absl::OkStatus();  // break and continue skip the assignment
  return Assign(statement.targets[0], *value);
}

absl::Status Evaluator::RunFilterBlock(const Statement& statement) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(outer);
  Result value = Capture([&] { return Run(statement.body); });
  if (value.ok() && flow_ == Flow::kNone) {
    block_text_ = *std::move(value);
    value = Evaluate(*statement.expression);
  }
  scope_ = outer;
  MT_RETURN_IF_ERROR(value.status());
  return flow_ == Flow::kNone ? AppendResult(*value) : absl::OkStatus();
}

absl::Status Evaluator::RunWith(const Statement& statement) {
  MT_ASSIGN_OR_RETURN(const std::vector<JinjaValue> values, EvaluateAll(statement.values));
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(outer);
  absl::Status status;
  for (size_t i = 0; i < values.size() && status.ok(); ++i) {
    status = Assign(statement.targets[i], values[i]);
  }
  if (status.ok()) status = Run(statement.body);
  scope_ = outer;
  return status;
}

// A block sees the variables of the top level, and those around it only if it is scoped.
absl::Status Evaluator::RunBlock(const Statement& statement) {
  const std::shared_ptr<Scope> outer = scope_;
  if (!statement.scoped) scope_ = root_;
  const absl::Status status = RunInner(statement.body);
  scope_ = outer;
  return status;
}

absl::Status Evaluator::RunGeneration(const Statement& statement) {
  const Result text = CallMacro(*statement.macro, scope_, {});
  MT_RETURN_IF_ERROR(text.status());
  const size_t begin = rendered_.text.size();
  if (out_ != &rendered_.text) captured_blocks_.emplace_back(begin, *text);
  rendered_.generation.emplace_back(begin, begin + text->as_string().size());
  return Append(text->as_string());
}

absl::Status Evaluator::RunAutoescape(const Statement& statement) {
  MT_ASSIGN_OR_RETURN(const JinjaValue escape, Evaluate(*statement.expression));
  if (IsTrue(escape)) return Error("{% autoescape true %} is not supported");
  return RunInner(statement.body);
}

absl::Status Evaluator::RunCallBlock(const Statement& statement) {
  MT_ASSIGN_OR_RETURN(JinjaValue caller, MakeMacro(*statement.macro));
  MT_ASSIGN_OR_RETURN(const JinjaValue value, EvaluateCall(*statement.expression, &caller));
  return AppendResult(value);
}

}  // namespace megatrain::jinja

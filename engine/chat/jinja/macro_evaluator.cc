// Macros and loops, of evaluator.h, and the values by which a program calls them.
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/evaluator.h"
#include "engine/chat/jinja/operators.h"

namespace megatrain::jinja {
namespace {

class Macro : public Object {
 public:
  Macro(Evaluator* evaluator, const MacroDefinition* definition, std::shared_ptr<Scope> closure)
      : evaluator_(evaluator), definition_(definition), closure_(std::move(closure)) {}
  std::string type_name() const override { return "Macro"; }
  bool is_callable() const override { return true; }
  Result Call(Runtime& runtime, CallValues values) override {
    return evaluator_->CallMacro(*definition_, closure_, std::move(values));
  }
  absl::StatusOr<std::optional<JinjaValue>> Attribute(Runtime& runtime,
                                                      std::string_view name) override {
    std::optional<JinjaValue> result;
    if (name == "name") {
      result = JinjaValue::String(definition_->name);
    } else if (name == "arguments") {
      std::vector<JinjaValue> names;
      for (const std::string& parameter : definition_->parameters) {
        names.push_back(JinjaValue::String(parameter));
      }
      MT_ASSIGN_OR_RETURN(result, runtime.MakeSequence(SequenceKind::kTuple, std::move(names)));
    } else if (name == "catch_kwargs" || name == "catch_varargs" || name == "caller") {
      result = JinjaValue::Bool(name == "caller"         ? definition_->uses_caller
                                : name == "catch_kwargs" ? definition_->uses_kwargs
                                                         : definition_->uses_varargs);
    }
    return result;
  }
  absl::StatusOr<std::optional<std::string>> Repr(Runtime& runtime) override {
    const std::string& name = definition_->name;
    return std::optional<std::string>(name.empty() ? "<Macro anonymous>"
                                                   : absl::StrCat("<Macro '", name, "'>"));
  }
  // Ends the references between a macro and the scope that it is a variable of.
  void Release() { closure_.reset(); }

 private:
  Evaluator* const evaluator_;
  const MacroDefinition* const definition_;
  std::shared_ptr<Scope> closure_;
};

// The variable `loop`. It reads ahead by an item if it is asked for the next one or whether this is
// the last, and to the end if it is asked for the length of something without one.
class Loop : public Object {
 public:
  Loop(Evaluator* evaluator, const Statement* statement, std::shared_ptr<Scope> closure,
       JinjaValue iterable, Cursor cursor, int depth)
      : Object(DepthOf(iterable) + 1),
        evaluator_(evaluator),
        statement_(statement),
        closure_(std::move(closure)),
        iterable_(std::move(iterable)),
        cursor_(std::move(cursor)),
        loop_depth_(depth) {}

  // Moves on to the next item. Returns false at the end.
  absl::StatusOr<bool> Advance(Runtime& runtime) {
    MT_ASSIGN_OR_RETURN(std::optional<JinjaValue> next, Peek(runtime));
    if (!next.has_value()) return false;
    after_.reset();
    ++index0_;
    before_ = std::move(current_);
    current_ = *std::move(next);
    return true;
  }
  const JinjaValue& current() const { return current_; }
  // Ends the loop. It may outlive it in a namespace, but must then not keep scopes alive: these
  // could hold other loops, in chains of any length.
  void End() {
    ended_ = true;
    closure_.reset();
    changed_ = JinjaValue();
  }

  std::string type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return true; }
  absl::StatusOr<std::optional<JinjaValue>> Attribute(Runtime& runtime,
                                                      std::string_view name) override;
  absl::StatusOr<std::optional<int64_t>> Length(Runtime& runtime) override;
  Result Call(Runtime& runtime, CallValues values) override {
    if (!statement_->recursive || ended_) {
      return Error("The loop must have the 'recursive' marker to be called recursively.");
    }
    if (values.positional.size() != 1 || !values.named.empty()) {
      return Error("a recursive loop takes one argument");
    }
    return evaluator_->CallLoop(*statement_, closure_, values.positional[0], loop_depth_ + 1);
  }
  absl::StatusOr<std::optional<std::string>> Repr(Runtime& runtime) override {
    MT_ASSIGN_OR_RETURN(const std::optional<int64_t> length, Length(runtime));
    return std::optional<std::string>(
        absl::StrCat("<LoopContext ", index0_ + 1, "/", *length, ">"));
  }
  Result Cycle(const std::vector<JinjaValue>& values) const {
    if (values.empty()) return Error("no items for cycling given");
    return values[index0_ % values.size()];
  }
  Result Changed(Runtime& runtime, const std::vector<JinjaValue>& values) {
    MT_ASSIGN_OR_RETURN(const JinjaValue tuple, runtime.MakeSequence(SequenceKind::kTuple, values));
    if (!changed_.is_undefined() && Equal(runtime, changed_, tuple)) return JinjaValue::Bool(false);
    if (!ended_) changed_ = tuple;
    return JinjaValue::Bool(true);
  }

 private:
  absl::StatusOr<std::optional<JinjaValue>> Peek(Runtime& runtime) {
    if (!after_.has_value()) {
      MT_ASSIGN_OR_RETURN(after_, TakeNext(runtime));
    }
    return after_;
  }
  absl::StatusOr<std::optional<JinjaValue>> TakeNext(Runtime& runtime) {
    if (ended_) return std::optional<JinjaValue>();
    if (statement_->condition != nullptr && !rest_is_read_) {
      return evaluator_->NextSelected(*statement_, closure_, &cursor_);
    }
    JinjaValue item;
    MT_ASSIGN_OR_RETURN(const bool more, cursor_.Next(runtime, &item));
    return more ? std::optional<JinjaValue>(std::move(item)) : std::nullopt;
  }

  Evaluator* const evaluator_;
  const Statement* const statement_;
  std::shared_ptr<Scope> closure_;
  const JinjaValue iterable_;
  Cursor cursor_;
  bool ended_ = false;
  bool rest_is_read_ = false;  // cursor_ goes over a list of what was left
  const int loop_depth_;       // from 0
  int64_t index0_ = -1;
  std::optional<int64_t> length_;
  std::optional<JinjaValue> after_;
  JinjaValue before_, current_, changed_;
};

absl::StatusOr<std::optional<int64_t>> Loop::Length(Runtime& runtime) {
  if (length_.has_value()) return length_;
  const absl::StatusOr<int64_t> length = LengthOf(runtime, iterable_);
  if (length.ok() && statement_->condition == nullptr) return length_ = *length;
  std::vector<JinjaValue> rest;
  while (true) {
    MT_ASSIGN_OR_RETURN(std::optional<JinjaValue> item, TakeNext(runtime));
    if (!item.has_value()) break;
    MT_RETURN_IF_ERROR(runtime.Charge(sizeof(JinjaValue)));
    rest.push_back(*std::move(item));
  }
  length_ = static_cast<int64_t>(rest.size()) + index0_ + 1 + after_.has_value();
  MT_ASSIGN_OR_RETURN(const JinjaValue list, runtime.MakeList(std::move(rest)));
  MT_ASSIGN_OR_RETURN(cursor_, Cursor::Over(list));
  rest_is_read_ = true;
  return length_;
}

Result LoopCycle(jinja::Call& call) {
  return static_cast<Loop&>(ObjectOf(call.self)).Cycle(call.rest.positional);
}
Result LoopChanged(jinja::Call& call) {
  return static_cast<Loop&>(ObjectOf(call.self)).Changed(call.runtime, call.rest.positional);
}
constexpr Builtin kLoopCycle = {"cycle", "*", LoopCycle};
constexpr Builtin kLoopChanged = {"changed", "*", LoopChanged};

absl::StatusOr<std::optional<JinjaValue>> Loop::Attribute(Runtime& runtime, std::string_view name) {
  using Found = std::optional<JinjaValue>;
  if (name == "index") return Found(JinjaValue::Int(index0_ + 1));
  if (name == "index0") return Found(JinjaValue::Int(index0_));
  if (name == "first") return Found(JinjaValue::Bool(index0_ == 0));
  if (name == "depth") return Found(JinjaValue::Int(loop_depth_ + 1));
  if (name == "depth0") return Found(JinjaValue::Int(loop_depth_));
  if (name == "last" || name == "nextitem") {
    MT_ASSIGN_OR_RETURN(Found next, Peek(runtime));
    if (name == "last") return Found(JinjaValue::Bool(!next.has_value()));
    if (next.has_value()) return next;
    MT_ASSIGN_OR_RETURN(next, runtime.MakeUndefined("there is no next item"));
    return next;
  }
  if (name == "previtem") {
    if (index0_ > 0) return Found(before_);
    MT_ASSIGN_OR_RETURN(Found missing, runtime.MakeUndefined("there is no previous item"));
    return missing;
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    MT_ASSIGN_OR_RETURN(const std::optional<int64_t> length, Length(runtime));
    const int64_t back = name == "length" ? 0 : name == "revindex" ? index0_ : index0_ + 1;
    return Found(JinjaValue::Int(*length - back));
  }
  if (name == "cycle" || name == "changed") {
    MT_ASSIGN_OR_RETURN(Found method,
                        MakeMethod(runtime, name == "cycle" ? &kLoopCycle : &kLoopChanged,
                                   JinjaValue(JinjaValue::Data(shared_from_this()))));
    return method;
  }
  return Found();
}

}  // namespace

Result Evaluator::MakeMacro(const MacroDefinition& definition) {
  auto macro = std::make_shared<Macro>(this, &definition, scope_);
  runtime_.KeepUntilEnd([macro] { macro->Release(); });
  return runtime_.MakeObject(std::move(macro));
}

Result Evaluator::CallMacro(const MacroDefinition& macro, const std::shared_ptr<Scope>& closure,
                            CallValues values) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(closure);
  const Result text = Capture([&]() -> absl::Status {
    MT_RETURN_IF_ERROR(BindParameters(macro, std::move(values)));
    return Run(macro.body);
  });
  scope_ = outer;
  return text;
}

absl::Status Evaluator::BindParameters(const MacroDefinition& macro, CallValues values) {
  MT_RETURN_IF_ERROR(runtime_.Charge(sizeof(Scope) + macro.parameters.size() * sizeof(JinjaValue)));
  std::vector<std::optional<JinjaValue>> arguments(macro.parameters.size());
  const size_t count = macro.parameters.size();
  bool found_caller = false;
  JinjaValue value;
  for (size_t i = 0; i < count; ++i) {
    found_caller |= macro.parameters[i] == "caller";
    if (i < values.positional.size()) {
      arguments[i] = values.positional[i];
    } else if (values.TakeNamed(macro.parameters[i], &value)) {
      arguments[i] = value;
    }
  }
  if (macro.uses_caller && !found_caller) {
    if (!values.TakeNamed("caller", &value) || value.is_none()) {
      MT_ASSIGN_OR_RETURN(value, runtime_.MakeUndefined("No caller defined"));
    }
    scope_->Set(program_.caller_name, value);
  }
  if (macro.uses_kwargs) {
    MT_ASSIGN_OR_RETURN(JinjaValue kwargs, [&]() -> Result {
      Dict dict;
      for (auto& [name, value] : values.named) {
        MT_RETURN_IF_ERROR(runtime_.SetEntry(&dict, JinjaValue::String(name), value));
      }
      return runtime_.MakeDict(std::move(dict));
    }());
    scope_->Set(program_.kwargs_name, std::move(kwargs));
  } else if (!values.named.empty()) {
    return Error(absl::StrCat("macro '", macro.name, "' takes no keyword argument '",
                              values.named[0].first, "'"));
  }
  if (macro.uses_varargs) {
    const size_t used = std::min(count, values.positional.size());
    MT_ASSIGN_OR_RETURN(JinjaValue varargs, runtime_.MakeSequence(SequenceKind::kTuple,
                                                                  {values.positional.begin() + used,
                                                                   values.positional.end()}));
    scope_->Set(program_.varargs_name, std::move(varargs));
  } else if (values.positional.size() > count) {
    return Error(
        absl::StrCat("macro '", macro.name, "' takes not more than ", count, " argument(s)"));
  }
  // Defaults see all arguments, and the defaults before them.
  const size_t required = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    if (!arguments[i].has_value()) {
      MT_ASSIGN_OR_RETURN(value, runtime_.MakeUndefined(absl::StrCat(
                                     i < required ? "parameter '" : "'", name,
                                     i < required ? "' was not provided" : "' is undefined")));
    }
    scope_->Set(macro.parameter_names[i], arguments[i].value_or(value));
  }
  for (size_t i = required; i < count; ++i) {
    if (arguments[i].has_value()) continue;
    MT_ASSIGN_OR_RETURN(value, Evaluate(*macro.defaults[i - required]));
    scope_->Set(macro.parameter_names[i], value);
  }
  return absl::OkStatus();
}

absl::Status Evaluator::RunFor(const Statement& statement) {
  MT_ASSIGN_OR_RETURN(const JinjaValue iterable, Evaluate(*statement.expression));
  if (!statement.recursive) return RunLoop(statement, iterable, 0);
  MT_ASSIGN_OR_RETURN(const JinjaValue text, CallLoop(statement, scope_, iterable, 0));
  return Append(text.as_string());
}

Result Evaluator::CallLoop(const Statement& loop, const std::shared_ptr<Scope>& closure,
                           const JinjaValue& iterable, int depth) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = closure;
  const Result text = Capture([&] { return RunLoop(loop, iterable, depth); });
  scope_ = outer;
  return text;
}

absl::StatusOr<std::optional<JinjaValue>> Evaluator::NextSelected(
    const Statement& loop, const std::shared_ptr<Scope>& closure, Cursor* cursor) {
  const std::shared_ptr<Scope> outer = scope_;
  std::optional<JinjaValue> selected;
  absl::Status status;
  while (!selected.has_value() && status.ok()) {
    JinjaValue item;
    const absl::StatusOr<bool> more = cursor->Next(runtime_, &item);
    status = more.status();
    if (!more.ok() || !*more) break;
    scope_ = std::make_shared<Scope>(closure);
    status = Assign(loop.targets[0], item);
    if (!status.ok()) break;
    const Result holds = Evaluate(*loop.condition);
    status = holds.status();
    if (holds.ok() && IsTrue(*holds)) selected = std::move(item);
  }
  scope_ = outer;
  MT_RETURN_IF_ERROR(status);
  return selected;
}

absl::Status Evaluator::RunLoop(const Statement& statement, const JinjaValue& iterable, int depth) {
  const std::shared_ptr<Scope> outer = scope_;
  MT_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(iterable));
  const auto loop =
      std::make_shared<Loop>(this, &statement, outer, iterable, std::move(cursor), depth);
  MT_ASSIGN_OR_RETURN(const JinjaValue loop_value, runtime_.MakeObject(loop));
  // As in Jinja, `else` runs if no iteration came to the end of the body: break and continue count
  // as such.
  bool completed = false;
  absl::Status status;
  while (status.ok()) {
    const absl::StatusOr<bool> more = loop->Advance(runtime_);
    status = more.status();
    if (!more.ok() || !*more) break;
    scope_ = std::make_shared<Scope>(outer);
    if (program_.loop_name >= 0) scope_->Set(program_.loop_name, loop_value);
    status = Assign(statement.targets[0], loop->current());
    if (status.ok()) status = Run(statement.body);
    const Flow flow = std::exchange(flow_, Flow::kNone);
    completed |= flow == Flow::kNone;
    if (flow == Flow::kBreak) break;
  }
  scope_ = outer;
  loop->End();
  MT_RETURN_IF_ERROR(status);
  return completed ? absl::OkStatus() : RunInner(statement.else_body);
}

}  // namespace megatrain::jinja

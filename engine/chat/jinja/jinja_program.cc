#include "engine/chat/jinja/jinja_program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/evaluator.h"
#include "engine/chat/jinja/runtime.h"
#include "engine/chat/jinja/syntax/parser.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

JinjaValue ValueOf(const jinja::Literal& literal) {
  struct Maker {
    JinjaValue operator()(std::nullptr_t) const { return JinjaValue::None(); }
    JinjaValue operator()(bool value) const { return JinjaValue::Bool(value); }
    JinjaValue operator()(int64_t value) const { return JinjaValue::Int(value); }
    JinjaValue operator()(double value) const { return JinjaValue::Float(value); }
    JinjaValue operator()(const std::string& value) const { return JinjaValue::String(value); }
  };
  return std::visit(Maker(), literal);
}

}  // namespace

absl::StatusOr<JinjaProgram> JinjaProgram::Parse(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a program of ", text.size(), " bytes; at most ", kTextBytesMax, " are read"));
  }
  MT_RETURN_IF_ERROR(CheckUtf8(text));
  const jinja::KnownNames known = {
      [](std::string_view name) { return jinja::FindFilter(name) != nullptr; },
      [](std::string_view name) { return jinja::FindTest(name) != nullptr; }};
  auto program = std::make_shared<jinja::Program>();
  MT_ASSIGN_OR_RETURN(program->syntax, jinja::Parser::Parse(text, known));
  for (const jinja::Literal& literal : program->syntax.literals) {
    program->literals.push_back(ValueOf(literal));
  }
  const std::vector<std::string>& names = program->syntax.names;
  for (const std::string& name : names) {
    program->functions.push_back(jinja::FindFunction(name));
  }
  const auto index = [&names](std::string_view name) {
    const auto at = std::find(names.begin(), names.end(), name);
    return at == names.end() ? -1 : static_cast<int>(at - names.begin());
  };
  program->loop_name = index("loop");
  program->varargs_name = index("varargs");
  program->kwargs_name = index("kwargs");
  program->caller_name = index("caller");
  return JinjaProgram(std::move(program));
}

absl::StatusOr<JinjaRendered> JinjaProgram::Render(const JinjaVariables& variables,
                                                   const JinjaOptions& options) const {
  jinja::Runtime runtime(options);
  jinja::Evaluator evaluator(*program_, variables, &runtime);
  return evaluator.Render();
}

bool JinjaProgram::has_generation() const { return program_->syntax.has_generation; }

bool JinjaProgram::uses_clock() const { return mentions("strftime_now"); }

bool JinjaProgram::mentions(std::string_view name) const {
  return program_->syntax.variables.contains(name) || reads_key(name);
}

bool JinjaProgram::reads_key(std::string_view name) const {
  return program_->syntax.keys.contains(name);
}

}  // namespace megatrain

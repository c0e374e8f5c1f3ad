// The rules of tags, and the parser's tokens.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/syntax/parser.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain::jinja {
namespace {

using Kind = Statement::Kind;

std::unique_ptr<Statement> MakeStatement(Kind kind, int line) {
  auto statement = std::make_unique<Statement>();
  statement->kind = kind;
  statement->line = line;
  return statement;
}

// Sets a variable while it lives.
template <typename Value>
class Scoped {
 public:
  Scoped(Value* variable, Value value) : variable_(variable), before_(*variable) {
    *variable_ = value;
  }
  ~Scoped() { *variable_ = before_; }

 private:
  Value* const variable_;
  const Value before_;
};

}  // namespace

absl::StatusOr<Syntax> Parser::Parse(std::string_view program, const KnownNames& known) {
  MT_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(program));
  Parser parser(std::move(tokens), known);
  MT_ASSIGN_OR_RETURN(parser.syntax_.body, parser.ParseBody({}));
  MT_RETURN_IF_ERROR(parser.ReportUnknown(0));
  return std::move(parser.syntax_);
}

bool Parser::TakeOperator(std::string_view op) {
  if (!current().IsOperator(op)) return false;
  Take();
  return true;
}

bool Parser::TakeName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Take();
  return true;
}

absl::Status Parser::Expect(Token::Kind kind, std::string_view what) {
  if (!current().Is(kind)) {
    return Error(absl::StrCat("expected ", ToAbsl(what), ", got ", Describe(current())));
  }
  Take();
  return absl::OkStatus();
}

absl::Status Parser::ExpectOperator(std::string_view op) {
  if (TakeOperator(op)) return absl::OkStatus();
  return Error(absl::StrCat("expected '", ToAbsl(op), "', got ", Describe(current())));
}

absl::StatusOr<std::string> Parser::ExpectAnyName() {
  const Token token = current();
  MT_RETURN_IF_ERROR(Expect(Token::Kind::kName, "a name"));
  return token.text;
}

absl::Status Parser::Error(std::string_view message) const {
  return SyntaxError(current().line, message);
}

void Parser::NoteIfUnknown(bool known, const char* what, const std::string& name, int line) {
  if (known) return;
  unknown_.push_back(absl::StrCat("line ", line, ": there is no ", what, " named '", name, "'"));
}

absl::Status Parser::ReportUnknown(size_t since) const {
  if (unknown_.size() <= since) return absl::OkStatus();
  return absl::InvalidArgumentError(unknown_[since]);
}

// body := (data | "{{" tuple "}}" | "{%" tag "%}")*
Parser::Statements Parser::ParseBody(std::initializer_list<std::string_view> ends) {
  const Scoped<int> level(&nesting_, nesting_ + 1);
  if (nesting_ > kNestingMax) return Error("blocks nested too deep");
  Body body;
  while (true) {
    const Token token = current();
    if (token.Is(Token::Kind::kEnd)) {
      if (ends.size() == 0) return body;
      return Error(absl::StrCat(
          "the program ends where ",
          absl::StrJoin(ends, " or ",
                        [](std::string* out, std::string_view end) { out->append(end); }),
          " is missing"));
    }
    Take();
    if (token.Is(Token::Kind::kData)) {
      body.push_back(MakeStatement(Kind::kData, token.line));
      body.back()->text = token.text;
    } else if (token.Is(Token::Kind::kVariableBegin)) {
      auto output = MakeStatement(Kind::kOutput, token.line);
      MT_ASSIGN_OR_RETURN(output->expression, ParseTuple(true, false));
      MT_RETURN_IF_ERROR(Expect(Token::Kind::kVariableEnd, "'}}'"));
      body.push_back(std::move(output));
    } else {
      for (const std::string_view end : ends) {
        if (current().IsName(end)) return body;
      }
      MT_ASSIGN_OR_RETURN(StatementPtr statement, ParseTag());
      MT_RETURN_IF_ERROR(Expect(Token::Kind::kBlockEnd, "'%}'"));
      body.push_back(std::move(statement));
    }
  }
}

absl::Status Parser::ExpectTagEnd() {
  TakeOperator(":");  // as in Python
  return Expect(Token::Kind::kBlockEnd, "'%}'");
}

Parser::Statements Parser::ParseBodyOf(std::string_view end) {
  MT_RETURN_IF_ERROR(ExpectTagEnd());
  MT_ASSIGN_OR_RETURN(Body body, ParseBody({end}));
  Take();
  return body;
}

absl::StatusOr<Parser::StatementPtr> Parser::ParseTag() {
  struct Rule {
    std::string_view tag;
    absl::StatusOr<StatementPtr> (Parser::*parse)();
  };
  static constexpr Rule kRules[] = {
      {"if", &Parser::ParseIf},
      {"for", &Parser::ParseFor},
      {"set", &Parser::ParseSet},
      {"macro", &Parser::ParseMacro},
      {"call", &Parser::ParseCallBlock},
      {"filter", &Parser::ParseFilterBlock},
      {"with", &Parser::ParseWith},
      {"block", &Parser::ParseBlock},
      {"generation", &Parser::ParseGeneration},
      {"autoescape", &Parser::ParseAutoescape},
      {"print", &Parser::ParsePrint},
      {"break", &Parser::ParseLoopControl},
      {"continue", &Parser::ParseLoopControl},
      {"include", &Parser::ParseUnavailable},
      {"import", &Parser::ParseUnavailable},
      {"from", &Parser::ParseUnavailable},
      {"extends", &Parser::ParseUnavailable},
  };
  for (const Rule& rule : kRules) {
    if (current().IsName(rule.tag)) return (this->*rule.parse)();
  }
  return Error(absl::StrCat("unknown tag ", Describe(current())));
}

// if := "if" tuple body ("elif" tuple body)* ["else" body] "endif"
absl::StatusOr<Parser::StatementPtr> Parser::ParseIf() {
  auto statement = MakeStatement(Kind::kIf, Take().line);
  const size_t unknown = unknown_.size();
  do {
    MT_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple(false, false));
    MT_RETURN_IF_ERROR(ExpectTagEnd());
    MT_ASSIGN_OR_RETURN(Body body, ParseBody({"elif", "else", "endif"}));
    statement->branches.emplace_back(std::move(condition), std::move(body));
  } while (TakeName("elif"));
  if (TakeName("else")) {
    MT_ASSIGN_OR_RETURN(statement->else_body, ParseBodyOf("endif"));
  } else {
    Take();
  }
  unknown_.resize(unknown);
  return statement;
}

// for := "for" target "in" tuple ["if" expression] ["recursive"] body ["else" body] "endfor"
absl::StatusOr<Parser::StatementPtr> Parser::ParseFor() {
  auto statement = MakeStatement(Kind::kFor, Take().line);
  const Scoped<int> fors(&fors_, fors_ + 1);
  MT_ASSIGN_OR_RETURN(Target target, ParseTarget(false));
  statement->targets.push_back(std::move(target));
  if (!TakeName("in")) return Error("expected 'in'");
  MT_ASSIGN_OR_RETURN(statement->expression, ParseTuple(false, false));
  const size_t unknown = unknown_.size();
  if (TakeName("if")) {
    MT_ASSIGN_OR_RETURN(statement->condition, ParseExpression());
  }
  statement->recursive = TakeName("recursive");
  MT_RETURN_IF_ERROR(ExpectTagEnd());
  {
    const Scoped<bool> loop(&in_loop_, true);
    MT_ASSIGN_OR_RETURN(statement->body, ParseBody({"endfor", "else"}));
  }
  if (TakeName("else")) {
    MT_ASSIGN_OR_RETURN(statement->else_body, ParseBodyOf("endfor"));
  } else {
    Take();
  }
  MT_RETURN_IF_ERROR(ReportUnknown(unknown));
  return statement;
}

// set := "set" target ("=" tuple | ("|" filter)* body "endset")
absl::StatusOr<Parser::StatementPtr> Parser::ParseSet() {
  auto statement = MakeStatement(Kind::kSet, Take().line);
  MT_ASSIGN_OR_RETURN(Target target, ParseTarget(true));
  statement->targets.push_back(std::move(target));
  if (TakeOperator("=")) {
    MT_ASSIGN_OR_RETURN(statement->expression, ParseTuple(true, false));
    return statement;
  }
  statement->kind = Kind::kSetBlock;
  const size_t unknown = unknown_.size();
  while (TakeOperator("|")) {
    MT_ASSIGN_OR_RETURN(statement->expression, ParseFilter(std::move(statement->expression)));
  }
  MT_ASSIGN_OR_RETURN(statement->body, ParseBodyOf("endset"));
  MT_RETURN_IF_ERROR(ReportUnknown(unknown));
  return statement;
}

// macro := "macro" name signature body "endmacro"
absl::StatusOr<Parser::StatementPtr> Parser::ParseMacro() {
  auto statement = MakeStatement(Kind::kMacro, Take().line);
  statement->macro = std::make_unique<MacroDefinition>();
  MT_ASSIGN_OR_RETURN(statement->macro->name, ExpectAnyName());
  statement->targets.resize(1);
  statement->targets[0].name = NameIndex(statement->macro->name);
  MT_RETURN_IF_ERROR(ParseSignature(statement->macro.get()));
  MT_RETURN_IF_ERROR(ParseMacroBody("endmacro", statement->macro.get()));
  return statement;
}

// call := "call" [signature] call body "endcall"
absl::StatusOr<Parser::StatementPtr> Parser::ParseCallBlock() {
  auto statement = MakeStatement(Kind::kCallBlock, Take().line);
  statement->macro = std::make_unique<MacroDefinition>();
  if (current().IsOperator("(")) MT_RETURN_IF_ERROR(ParseSignature(statement->macro.get()));
  MT_ASSIGN_OR_RETURN(statement->expression, ParseExpression());
  if (statement->expression->kind != Expression::Kind::kCall) return Error("expected a call");
  MT_RETURN_IF_ERROR(ParseMacroBody("endcall", statement->macro.get()));
  return statement;
}

// signature := "(" [name ["=" expression] ("," ...)*] ")"
absl::Status Parser::ParseSignature(MacroDefinition* macro) {
  MT_RETURN_IF_ERROR(ExpectOperator("("));
  while (!current().IsOperator(")")) {
    if (!macro->parameters.empty()) MT_RETURN_IF_ERROR(ExpectOperator(","));
    MT_ASSIGN_OR_RETURN(const std::string name, ExpectAnyName());
    if (std::count(macro->parameters.begin(), macro->parameters.end(), name) != 0) {
      return Error(absl::StrCat("the parameter ", name, " is there twice"));
    }
    macro->parameters.push_back(name);
    macro->parameter_names.push_back(NameIndex(name));
    if (TakeOperator("=")) {
      MT_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      macro->defaults.push_back(std::move(value));
    } else if (!macro->defaults.empty()) {
      return Error("a parameter without a default follows one with a default");
    }
  }
  return ExpectOperator(")");
}

absl::Status Parser::ParseMacroBody(std::string_view end, MacroDefinition* macro) {
  const bool caller = names_caller_, varargs = names_varargs_, kwargs = names_kwargs_;
  names_caller_ = names_varargs_ = names_kwargs_ = false;
  const Scoped<bool> loop(&in_loop_, false);
  const size_t unknown = unknown_.size();
  MT_ASSIGN_OR_RETURN(macro->body, ParseBodyOf(end));
  MT_RETURN_IF_ERROR(ReportUnknown(unknown));
  const auto is_parameter = [macro](std::string_view name) {
    return std::count(macro->parameters.begin(), macro->parameters.end(), name) != 0;
  };
  macro->uses_caller = names_caller_;
  macro->uses_varargs = names_varargs_ && !is_parameter("varargs");
  macro->uses_kwargs = names_kwargs_ && !is_parameter("kwargs");
  const size_t required = macro->parameters.size() - macro->defaults.size();
  for (size_t i = 0; names_caller_ && i < required; ++i) {
    if (macro->parameters[i] == "caller") return Error("the parameter caller needs a default");
  }
  names_caller_ |= caller;
  names_varargs_ |= varargs;
  names_kwargs_ |= kwargs;
  return absl::OkStatus();
}

// filter := "filter" filter ("|" filter)* body "endfilter"
absl::StatusOr<Parser::StatementPtr> Parser::ParseFilterBlock() {
  auto statement = MakeStatement(Kind::kFilterBlock, Take().line);
  const size_t unknown = unknown_.size();
  do {
    MT_ASSIGN_OR_RETURN(statement->expression, ParseFilter(std::move(statement->expression)));
  } while (TakeOperator("|"));
  MT_ASSIGN_OR_RETURN(statement->body, ParseBodyOf("endfilter"));
  MT_RETURN_IF_ERROR(ReportUnknown(unknown));
  return statement;
}

// with := "with" [target "=" expression ("," ...)*] body "endwith"
absl::StatusOr<Parser::StatementPtr> Parser::ParseWith() {
  auto statement = MakeStatement(Kind::kWith, Take().line);
  while (!current().Is(Token::Kind::kBlockEnd)) {
    if (!statement->targets.empty()) MT_RETURN_IF_ERROR(ExpectOperator(","));
    MT_ASSIGN_OR_RETURN(Target target, ParseTarget(false));
    statement->targets.push_back(std::move(target));
    MT_RETURN_IF_ERROR(ExpectOperator("="));
    MT_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    statement->values.push_back(std::move(value));
  }
  const size_t unknown = unknown_.size();
  MT_ASSIGN_OR_RETURN(statement->body, ParseBodyOf("endwith"));
  MT_RETURN_IF_ERROR(ReportUnknown(unknown));
  return statement;
}

// block := "block" name ["scoped"] ["required"] body "endblock" [name]
absl::StatusOr<Parser::StatementPtr> Parser::ParseBlock() {
  auto statement = MakeStatement(Kind::kBlock, Take().line);
  MT_ASSIGN_OR_RETURN(statement->text, ExpectAnyName());
  if (std::count(blocks_.begin(), blocks_.end(), statement->text) != 0) {
    return Error(absl::StrCat("the block ", statement->text, " is defined twice"));
  }
  blocks_.push_back(statement->text);
  statement->scoped = TakeName("scoped");
  if (TakeName("required")) return Error("a required block, which needs another template");
  const Scoped<bool> loop(&in_loop_, false);
  const size_t unknown = unknown_.size();
  MT_ASSIGN_OR_RETURN(statement->body, ParseBodyOf("endblock"));
  MT_RETURN_IF_ERROR(ReportUnknown(unknown));
  TakeName(statement->text);
  return statement;
}

// generation := "generation" body "endgeneration"
absl::StatusOr<Parser::StatementPtr> Parser::ParseGeneration() {
  auto statement = MakeStatement(Kind::kGeneration, Take().line);
  statement->macro = std::make_unique<MacroDefinition>();
  MT_RETURN_IF_ERROR(ParseMacroBody("endgeneration", statement->macro.get()));
  syntax_.has_generation = true;
  return statement;
}

absl::StatusOr<Parser::StatementPtr> Parser::ParseAutoescape() {
  auto statement = MakeStatement(Kind::kAutoescape, Take().line);
  MT_ASSIGN_OR_RETURN(statement->expression, ParseExpression());
  const size_t unknown = unknown_.size();
  MT_ASSIGN_OR_RETURN(statement->body, ParseBodyOf("endautoescape"));
  MT_RETURN_IF_ERROR(ReportUnknown(unknown));
  return statement;
}

// print := "print" [expression ("," expression)*]
absl::StatusOr<Parser::StatementPtr> Parser::ParsePrint() {
  auto statement = MakeStatement(Kind::kPrint, Take().line);
  while (!current().Is(Token::Kind::kBlockEnd)) {
    if (!statement->values.empty()) MT_RETURN_IF_ERROR(ExpectOperator(","));
    MT_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    statement->values.push_back(std::move(value));
  }
  return statement;
}

absl::StatusOr<Parser::StatementPtr> Parser::ParseLoopControl() {
  const Token tag = Take();
  if (!in_loop_) return SyntaxError(tag.line, absl::StrCat("'", tag.text, "' outside of a loop"));
  return MakeStatement(tag.text == "break" ? Kind::kBreak : Kind::kContinue, tag.line);
}

// Tags that need other templates. They are errors when they are reached, so that their arguments
// are parsed and not kept.
absl::StatusOr<Parser::StatementPtr> Parser::ParseUnavailable() {
  const Token tag = Take();
  auto statement = MakeStatement(Kind::kUnavailable, tag.line);
  statement->text = tag.text;
  MT_ASSIGN_OR_RETURN(statement->expression, ParseExpression());
  while (current().Is(Token::Kind::kName) || current().IsOperator(",")) Take();
  return statement;
}

// target := one ("," one)* [","]
absl::StatusOr<Target> Parser::ParseTarget(bool with_attributes) {
  Target tuple;
  do {
    if (!tuple.parts.empty() &&
        (current().Is(Token::Kind::kBlockEnd) || current().IsOperator(")"))) {
      break;
    }
    MT_ASSIGN_OR_RETURN(Target part, ParseOneTarget(with_attributes));
    tuple.parts.push_back(std::move(part));
    tuple.is_tuple |= current().IsOperator(",");
  } while (TakeOperator(","));
  if (!tuple.is_tuple) return std::move(tuple.parts[0]);
  return tuple;
}

// one := name | name "." name | "(" target ")"
absl::StatusOr<Target> Parser::ParseOneTarget(bool with_attributes) {
  const Scoped<int> level(&nesting_, nesting_ + 1);
  if (nesting_ > kNestingMax) return Error("nested too deep");
  if (TakeOperator("(")) {
    MT_ASSIGN_OR_RETURN(Target target, ParseTarget(false));
    MT_RETURN_IF_ERROR(ExpectOperator(")"));
    return target;
  }
  const Token token = current();
  MT_ASSIGN_OR_RETURN(const std::string name, ExpectAnyName());
  Target target;
  target.name = NameIndex(name);
  if (with_attributes && TakeOperator(".")) {
    MT_ASSIGN_OR_RETURN(target.attribute, ExpectAnyName());
    syntax_.keys.insert(target.attribute);
    return target;
  }
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) return SyntaxError(token.line, "cannot assign to " + name);
  }
  if (name == "loop" && fors_ > 0) {
    return SyntaxError(token.line, "cannot assign to the special variable loop in a loop");
  }
  return target;
}

}  // namespace megatrain::jinja

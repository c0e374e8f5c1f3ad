// The rules of operators; operand_parser.cc has those of their operands.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/syntax/parser.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain::jinja {
namespace {

using Kind = Expression::Kind;

// Counts a level of recursion while it lives.
class Level {
 public:
  explicit Level(int* nesting) : nesting_(nesting) { ++*nesting_; }
  ~Level() { --*nesting_; }

 private:
  int* const nesting_;
};

// The operator of `token` among `choices`, if it is one of them.
std::optional<Operator> Find(const Token& token,
                             std::initializer_list<std::pair<std::string_view, Operator>> choices) {
  for (const auto& [text, op] : choices) {
    if (token.IsOperator(text)) return op;
  }
  return std::nullopt;
}

}  // namespace

#define NESTED_LEVEL()          \
  const Level level(&nesting_); \
  if (nesting_ > kNestingMax) return Error("nested too deep")

// expression := conditional | or
Parser::Parsed Parser::ParseExpression(bool with_conditional) {
  NESTED_LEVEL();
  return with_conditional ? ParseConditional() : ParseOr();
}

// conditional := or ("if" or ["else" conditional])*
Parser::Parsed Parser::ParseConditional() {
  NESTED_LEVEL();
  const size_t unknown = unknown_.size();
  int line = current().line;
  MT_ASSIGN_OR_RETURN(ExpressionPtr result, ParseOr());
  while (TakeName("if")) {
    ExpressionPtr conditional = Make(Kind::kConditional, line);
    MT_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    ExpressionPtr otherwise;
    if (TakeName("else")) {
      MT_ASSIGN_OR_RETURN(otherwise, ParseConditional());
    }
    conditional->parts.push_back(std::move(condition));
    conditional->parts.push_back(std::move(result));
    conditional->parts.push_back(std::move(otherwise));
    MT_ASSIGN_OR_RETURN(result, Finish(std::move(conditional)));
    unknown_.resize(unknown);
    line = current().line;
  }
  return result;
}

// or := and ("or" and)*
Parser::Parsed Parser::ParseOr() {
  const int line = current().line;
  MT_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (TakeName("or")) {
    MT_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    MT_ASSIGN_OR_RETURN(left, MakeBinary(Kind::kOr, line, std::move(left), std::move(right)));
  }
  return left;
}

// and := not ("and" not)*
Parser::Parsed Parser::ParseAnd() {
  const int line = current().line;
  MT_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (TakeName("and")) {
    MT_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    MT_ASSIGN_OR_RETURN(left, MakeBinary(Kind::kAnd, line, std::move(left), std::move(right)));
  }
  return left;
}

// not := "not" not | compare
Parser::Parsed Parser::ParseNot() {
  NESTED_LEVEL();
  const int line = current().line;
  if (!TakeName("not")) return ParseCompare();
  ExpressionPtr result = Make(Kind::kNot, line);
  MT_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  result->parts.push_back(std::move(operand));
  return Finish(std::move(result));
}

// compare := sum (("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not" "in") sum)*
Parser::Parsed Parser::ParseCompare() {
  ExpressionPtr result = Make(Kind::kCompare, current().line);
  MT_ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  result->parts.push_back(std::move(first));
  while (true) {
    if (const auto op = Find(current(), {{"==", Operator::kEqual},
                                         {"!=", Operator::kNotEqual},
                                         {"<", Operator::kLess},
                                         {"<=", Operator::kLessEqual},
                                         {">", Operator::kGreater},
                                         {">=", Operator::kGreaterEqual}})) {
      Take();
      result->operators.push_back(*op);
    } else if (TakeName("in")) {
      result->operators.push_back(Operator::kIn);
    } else if (current().IsName("not") && next().IsName("in")) {
      Take();
      Take();
      result->operators.push_back(Operator::kNotIn);
    } else {
      break;
    }
    MT_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
    result->parts.push_back(std::move(operand));
  }
  if (result->operators.empty()) return std::move(result->parts[0]);
  return Finish(std::move(result));
}

// sum := concat (("+" | "-") concat)*
Parser::Parsed Parser::ParseSum() {
  const int line = current().line;
  MT_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcat());
  while (const auto op = Find(current(), {{"+", Operator::kAdd}, {"-", Operator::kSubtract}})) {
    Take();
    MT_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcat());
    MT_ASSIGN_OR_RETURN(
        left, MakeBinary(Kind::kArithmetic, line, std::move(left), std::move(right), *op));
  }
  return left;
}

// concat := product ("~" product)*
Parser::Parsed Parser::ParseConcat() {
  ExpressionPtr result = Make(Kind::kConcat, current().line);
  do {
    MT_ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    result->parts.push_back(std::move(part));
  } while (TakeOperator("~"));
  if (result->parts.size() == 1) return std::move(result->parts[0]);
  return Finish(std::move(result));
}

// product := power (("*" | "/" | "//" | "%") power)*
Parser::Parsed Parser::ParseProduct() {
  const int line = current().line;
  MT_ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  while (const auto op = Find(current(), {{"*", Operator::kMultiply},
                                          {"/", Operator::kDivide},
                                          {"//", Operator::kFloorDivide},
                                          {"%", Operator::kModulo}})) {
    Take();
    MT_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    MT_ASSIGN_OR_RETURN(
        left, MakeBinary(Kind::kArithmetic, line, std::move(left), std::move(right), *op));
  }
  return left;
}

// power := unary ("**" unary)*, from left to right, and a sign binds tighter: -2 ** 2 is 4.
Parser::Parsed Parser::ParsePower() {
  const int line = current().line;
  MT_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary());
  while (TakeOperator("**")) {
    MT_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary());
    MT_ASSIGN_OR_RETURN(left, MakeBinary(Kind::kArithmetic, line, std::move(left), std::move(right),
                                         Operator::kPower));
  }
  return left;
}

// unary := (("-" | "+") unary-without-filters | primary) postfix* filter*
Parser::Parsed Parser::ParseUnary(bool with_filters) {
  NESTED_LEVEL();
  const int line = current().line;
  const bool minus = current().IsOperator("-");
  ExpressionPtr result;
  if (minus || current().IsOperator("+")) {
    Take();
    result = Make(minus ? Kind::kNegate : Kind::kPlus, line);
    MT_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
    result->parts.push_back(std::move(operand));
    MT_ASSIGN_OR_RETURN(result, Finish(std::move(result)));
  } else {
    MT_ASSIGN_OR_RETURN(result, ParsePrimary());
  }
  MT_ASSIGN_OR_RETURN(result, ParsePostfix(std::move(result)));
  if (!with_filters) return result;
  return ParseFilters(std::move(result));
}

// postfix := "." name | "." integer | "[" subscribed "]" | call
Parser::Parsed Parser::ParsePostfix(ExpressionPtr expression) {
  while (true) {
    if (current().IsOperator(".") || current().IsOperator("[")) {
      MT_ASSIGN_OR_RETURN(expression, ParseSubscript(std::move(expression)));
    } else if (current().IsOperator("(")) {
      MT_ASSIGN_OR_RETURN(expression, ParseCall(std::move(expression)));
    } else {
      return expression;
    }
  }
}

// filter := "|" name [arguments] | "is" test | call
Parser::Parsed Parser::ParseFilters(ExpressionPtr expression) {
  while (true) {
    if (TakeOperator("|")) {
      MT_ASSIGN_OR_RETURN(expression, ParseFilter(std::move(expression)));
    } else if (current().IsName("is")) {
      MT_ASSIGN_OR_RETURN(expression, ParseTest(std::move(expression)));
    } else if (current().IsOperator("(")) {
      MT_ASSIGN_OR_RETURN(expression, ParseCall(std::move(expression)));
    } else {
      return expression;
    }
  }
}

ExpressionPtr Parser::Make(Kind kind, int line) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = line;
  return expression;
}

Parser::Parsed Parser::Finish(ExpressionPtr expression) const {
  const auto beneath = [&](const ExpressionPtr& part) {
    if (part != nullptr) expression->height = std::max(expression->height, part->height + 1);
  };
  for (const ExpressionPtr& part : expression->parts) beneath(part);
  if (expression->arguments != nullptr) {
    for (const ExpressionPtr& part : expression->arguments->positional) beneath(part);
    for (const auto& [name, part] : expression->arguments->named) beneath(part);
    beneath(expression->arguments->more_positional);
    beneath(expression->arguments->more_named);
  }
  if (expression->height > kHeightMax) return Error("an expression that is nested too deep");
  return expression;
}

Parser::Parsed Parser::MakeBinary(Kind kind, int line, ExpressionPtr left, ExpressionPtr right,
                                  Operator op) const {
  ExpressionPtr result = Make(kind, line);
  result->parts.push_back(std::move(left));
  result->parts.push_back(std::move(right));
  result->operators.push_back(op);
  return Finish(std::move(result));
}

ExpressionPtr Parser::MakeLiteral(int line, Literal value) {
  ExpressionPtr literal = Make(Kind::kLiteral, line);
  literal->index = static_cast<int>(syntax_.literals.size());
  syntax_.literals.push_back(std::move(value));
  return literal;
}

int Parser::NameIndex(const std::string& name) {
  const auto [at, inserted] = name_indices_.emplace(name, static_cast<int>(syntax_.names.size()));
  if (inserted) {
    syntax_.names.push_back(name);
    syntax_.variables.insert(name);
  }
  return at->second;
}

#undef NESTED_LEVEL

}  // namespace megatrain::jinja

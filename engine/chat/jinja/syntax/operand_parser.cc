// The rules of operands: literals, brackets, subscripts, calls, filters and tests.
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/syntax/parser.h"

namespace megatrain::jinja {

using Kind = Expression::Kind;

// primary := literal | name | string+ | "(" tuple ")" | list | dict
Parser::Parsed Parser::ParsePrimary() {
  const Token token = current();
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  if (token.IsOperator("(")) {
    Take();
    MT_ASSIGN_OR_RETURN(ExpressionPtr result, ParseTuple(true, true));
    MT_RETURN_IF_ERROR(ExpectOperator(")"));
    return result;
  }
  switch (token.kind) {
    case Token::Kind::kName: {
      Take();
      if (token.text == "true" || token.text == "True") return MakeLiteral(token.line, true);
      if (token.text == "false" || token.text == "False") return MakeLiteral(token.line, false);
      if (token.text == "none" || token.text == "None") return MakeLiteral(token.line, nullptr);
      names_caller_ |= token.text == "caller";
      names_varargs_ |= token.text == "varargs";
      names_kwargs_ |= token.text == "kwargs";
      ExpressionPtr name = Make(Kind::kName, token.line);
      name->index = NameIndex(token.text);
      return name;
    }
    case Token::Kind::kString: {
      std::string text;
      while (current().Is(Token::Kind::kString)) text += Take().text;
      syntax_.keys.insert(text);
      return MakeLiteral(token.line, std::move(text));
    }
    case Token::Kind::kInteger:
      Take();
      return MakeLiteral(token.line, token.integer);
    case Token::Kind::kFloat:
      Take();
      return MakeLiteral(token.line, token.number);
    default:
      return Error(absl::StrCat("unexpected ", Describe(token)));
  }
}

// list := "[" [expression ("," expression)* [","]] "]"
Parser::Parsed Parser::ParseList() {
  ExpressionPtr list = Make(Kind::kList, current().line);
  MT_RETURN_IF_ERROR(ExpectOperator("["));
  while (!current().IsOperator("]")) {
    if (!list->parts.empty()) {
      MT_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator("]")) break;
    }
    MT_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    list->parts.push_back(std::move(item));
  }
  MT_RETURN_IF_ERROR(ExpectOperator("]"));
  return Finish(std::move(list));
}

// dict := "{" [expression ":" expression ("," ...)* [","]] "}"
Parser::Parsed Parser::ParseDict() {
  ExpressionPtr dict = Make(Kind::kDict, current().line);
  MT_RETURN_IF_ERROR(ExpectOperator("{"));
  while (!current().IsOperator("}")) {
    if (!dict->parts.empty()) {
      MT_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator("}")) break;
    }
    MT_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    dict->parts.push_back(std::move(key));
    MT_RETURN_IF_ERROR(ExpectOperator(":"));
    MT_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    dict->parts.push_back(std::move(value));
  }
  MT_RETURN_IF_ERROR(ExpectOperator("}"));
  return Finish(std::move(dict));
}

// tuple := expression ("," expression)* [","]
Parser::Parsed Parser::ParseTuple(bool with_conditional, bool in_brackets) {
  ExpressionPtr tuple = Make(Kind::kTuple, current().line);
  bool is_tuple = false;
  while (true) {
    if (!tuple->parts.empty()) MT_RETURN_IF_ERROR(ExpectOperator(","));
    if (current().Is(Token::Kind::kVariableEnd) || current().Is(Token::Kind::kBlockEnd) ||
        current().IsOperator(")")) {
      break;
    }
    MT_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(with_conditional));
    tuple->parts.push_back(std::move(item));
    if (!current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple->parts.empty()) return std::move(tuple->parts[0]);
  if (!is_tuple && !in_brackets) {
    return Error(absl::StrCat("expected an expression, got ", Describe(current())));
  }
  return Finish(std::move(tuple));
}

Parser::Parsed Parser::ParseSubscript(ExpressionPtr expression) {
  const Token token = Take();
  ExpressionPtr result = Make(Kind::kItem, token.line);
  result->parts.push_back(std::move(expression));
  if (token.IsOperator(".")) {
    const Token attribute = Take();
    if (attribute.Is(Token::Kind::kName)) {
      result->kind = Kind::kAttribute;
      result->text = attribute.text;
      syntax_.keys.insert(attribute.text);
    } else if (attribute.Is(Token::Kind::kInteger)) {
      result->parts.push_back(MakeLiteral(attribute.line, attribute.integer));
    } else {
      return Error("expected a name or a number after '.'");
    }
    return Finish(std::move(result));
  }
  std::vector<ExpressionPtr> items;
  while (!current().IsOperator("]")) {
    if (!items.empty()) MT_RETURN_IF_ERROR(ExpectOperator(","));
    MT_ASSIGN_OR_RETURN(ExpressionPtr item, ParseSubscribed());
    items.push_back(std::move(item));
  }
  MT_RETURN_IF_ERROR(ExpectOperator("]"));
  if (items.size() == 1) {
    result->parts.push_back(std::move(items[0]));
    return Finish(std::move(result));
  }
  ExpressionPtr tuple = Make(Kind::kTuple, token.line);
  tuple->parts = std::move(items);
  MT_ASSIGN_OR_RETURN(tuple, Finish(std::move(tuple)));
  result->parts.push_back(std::move(tuple));
  return Finish(std::move(result));
}

// subscribed := expression | [expression] ":" [expression] [":" [expression]]
Parser::Parsed Parser::ParseSubscribed() {
  ExpressionPtr slice = Make(Kind::kSlice, current().line);
  slice->parts.resize(3);
  if (!current().IsOperator(":")) {
    MT_ASSIGN_OR_RETURN(slice->parts[0], ParseExpression());
    if (!current().IsOperator(":")) return std::move(slice->parts[0]);
  }
  for (size_t part = 1; part < 3 && TakeOperator(":"); ++part) {
    if (current().IsOperator(":") || current().IsOperator("]") || current().IsOperator(",")) {
      continue;
    }
    MT_ASSIGN_OR_RETURN(slice->parts[part], ParseExpression());
  }
  return Finish(std::move(slice));
}

// call := "(" [argument ("," argument)* [","]] ")"
Parser::Parsed Parser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr call = Make(Kind::kCall, current().line);
  call->parts.push_back(std::move(callee));
  MT_ASSIGN_OR_RETURN(call->arguments, ParseArguments());
  return Finish(std::move(call));
}

absl::StatusOr<std::unique_ptr<CallArguments>> Parser::ParseArguments() {
  auto arguments = std::make_unique<CallArguments>();
  MT_RETURN_IF_ERROR(ExpectOperator("("));
  for (bool first = true; !current().IsOperator(")"); first = false) {
    if (!first) {
      MT_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator(")")) break;
    }
    MT_RETURN_IF_ERROR(ParseArgument(arguments.get()));
  }
  MT_RETURN_IF_ERROR(ExpectOperator(")"));
  return arguments;
}

// argument := expression | name "=" expression | "*" expression | "**" expression
absl::Status Parser::ParseArgument(CallArguments* arguments) {
  const bool star = arguments->more_positional != nullptr;
  const bool stars = arguments->more_named != nullptr;
  if (TakeOperator("*")) {
    if (star || stars) return Error("arguments in a wrong order");
    MT_ASSIGN_OR_RETURN(arguments->more_positional, ParseExpression());
  } else if (TakeOperator("**")) {
    if (stars) return Error("arguments in a wrong order");
    MT_ASSIGN_OR_RETURN(arguments->more_named, ParseExpression());
  } else if (current().Is(Token::Kind::kName) && next().IsOperator("=")) {
    if (stars) return Error("arguments in a wrong order");
    const std::string name = Take().text;
    Take();
    for (const auto& [other, value] : arguments->named) {
      if (other == name) return Error(absl::StrCat("the argument ", name, " is given twice"));
    }
    NameIndex(name);
    MT_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    arguments->named.emplace_back(name, std::move(value));
  } else {
    if (star || stars || !arguments->named.empty()) return Error("arguments in a wrong order");
    MT_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    arguments->positional.push_back(std::move(value));
  }
  return absl::OkStatus();
}

Parser::Parsed Parser::ParseFilter(ExpressionPtr input) {
  ExpressionPtr filter = Make(Kind::kFilter, current().line);
  MT_ASSIGN_OR_RETURN(filter->text, ParseDottedName());
  NoteIfUnknown(known_.is_filter(filter->text), "filter", filter->text, filter->line);
  filter->parts.push_back(std::move(input));
  filter->arguments = std::make_unique<CallArguments>();
  if (current().IsOperator("(")) {
    MT_ASSIGN_OR_RETURN(filter->arguments, ParseArguments());
  }
  return Finish(std::move(filter));
}

// test := "is" ["not"] name [arguments | primary postfix*]
Parser::Parsed Parser::ParseTest(ExpressionPtr input) {
  ExpressionPtr test = Make(Kind::kTest, current().line);
  Take();
  const bool negated = TakeName("not");
  MT_ASSIGN_OR_RETURN(test->text, ParseDottedName());
  NoteIfUnknown(known_.is_test(test->text), "test", test->text, test->line);
  test->parts.push_back(std::move(input));
  test->arguments = std::make_unique<CallArguments>();
  const Token& token = current();
  if (token.IsOperator("(")) {
    MT_ASSIGN_OR_RETURN(test->arguments, ParseArguments());
  } else if ((token.Is(Token::Kind::kName) || token.Is(Token::Kind::kString) ||
              token.Is(Token::Kind::kInteger) || token.Is(Token::Kind::kFloat) ||
              token.IsOperator("[") || token.IsOperator("{")) &&
             !token.IsName("else") && !token.IsName("or") && !token.IsName("and")) {
    if (token.IsName("is")) return Error("tests with 'is' cannot be chained");
    MT_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    MT_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test->arguments->positional.push_back(std::move(argument));
  }
  const int line = test->line;
  MT_ASSIGN_OR_RETURN(test, Finish(std::move(test)));
  if (!negated) return test;
  ExpressionPtr result = Make(Kind::kNot, line);
  result->parts.push_back(std::move(test));
  return Finish(std::move(result));
}

absl::StatusOr<std::string> Parser::ParseDottedName() {
  MT_ASSIGN_OR_RETURN(std::string name, ExpectAnyName());
  while (TakeOperator(".")) {
    MT_ASSIGN_OR_RETURN(const std::string more, ExpectAnyName());
    absl::StrAppend(&name, ".", more);
  }
  return name;
}

}  // namespace megatrain::jinja

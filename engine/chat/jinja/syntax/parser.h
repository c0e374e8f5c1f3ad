// A recursive-descent parser of Jinja's grammar, with a method for each rule.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_SYNTAX_PARSER_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_SYNTAX_PARSER_H_

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/chat/jinja/syntax/lexer.h"
#include "engine/chat/jinja/syntax/syntax_tree.h"

namespace megatrain::jinja {

// Tell which filters and tests there are. Neither may be empty.
struct KnownNames {
  std::function<bool(std::string_view)> is_filter;
  std::function<bool(std::string_view)> is_test;
};

// Parses one program. Parse makes an instance for each call.
class Parser {
 public:
  // kNestingMax is the most levels of the parser's recursion. A block, a prefix operator or the
  // `else` of a conditional expression takes one level. An expression takes up to four, and so does
  // each pair of brackets in it. kHeightMax is the most levels of the tree of one expression.
  static constexpr int kNestingMax = 100;
  static constexpr int kHeightMax = 250;

  // Returns the syntax tree of `program`. Returns InvalidArgument "line 3: ..." for a program that
  // is not in the grammar, names an unknown filter or test outside of a conditional
  // (NoteIfUnknown), or is nested too deep. The arguments are used during the call only. REQUIRES:
  // `program` is well-formed UTF-8.
  static absl::StatusOr<Syntax> Parse(std::string_view program, const KnownNames& known);

 private:
  using Parsed = absl::StatusOr<ExpressionPtr>;
  using Statements = absl::StatusOr<Body>;
  using StatementPtr = std::unique_ptr<Statement>;

  Parser(std::vector<Token> tokens, const KnownNames& known)
      : tokens_(std::move(tokens)), known_(known) {}

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool TakeOperator(std::string_view op);
  bool TakeName(std::string_view name);
  absl::Status Expect(Token::Kind kind, std::string_view what);
  absl::Status ExpectOperator(std::string_view op);
  absl::StatusOr<std::string> ExpectAnyName();
  absl::Status Error(std::string_view message) const;

  // Expressions, from the loosest rule to the tightest.
  Parsed ParseExpression(bool with_conditional = true);
  Parsed ParseConditional();
  Parsed ParseOr();
  Parsed ParseAnd();
  Parsed ParseNot();
  Parsed ParseCompare();
  Parsed ParseSum();
  Parsed ParseConcat();
  Parsed ParseProduct();
  Parsed ParsePower();
  Parsed ParseUnary(bool with_filters = true);
  Parsed ParsePostfix(ExpressionPtr expression);
  Parsed ParseFilters(ExpressionPtr expression);
  Parsed ParsePrimary();
  Parsed ParseList();
  Parsed ParseDict();
  // a, b, c: a tuple if there is a comma.
  Parsed ParseTuple(bool with_conditional, bool in_brackets);
  Parsed ParseSubscript(ExpressionPtr expression);
  Parsed ParseSubscribed();
  Parsed ParseCall(ExpressionPtr callee);
  // The rest of a filter, after "|". `input` is null for the text of a block.
  Parsed ParseFilter(ExpressionPtr input);
  Parsed ParseTest(ExpressionPtr input);
  absl::StatusOr<std::unique_ptr<CallArguments>> ParseArguments();
  absl::Status ParseArgument(CallArguments* arguments);
  absl::StatusOr<std::string> ParseDottedName();

  ExpressionPtr Make(Expression::Kind kind, int line) const;
  // Sets the height. Returns an error beyond kHeightMax.
  Parsed Finish(ExpressionPtr expression) const;
  Parsed MakeBinary(Expression::Kind kind, int line, ExpressionPtr left, ExpressionPtr right,
                    Operator op = Operator::kAdd) const;
  ExpressionPtr MakeLiteral(int line, Literal value);
  int NameIndex(const std::string& name);

  // Statements.
  // Parses until a tag whose name is in `ends`, and leaves the cursor on that name.
  Statements ParseBody(std::initializer_list<std::string_view> ends);
  // The body of a tag, from the end of that tag up to and with the end tag `end`.
  Statements ParseBodyOf(std::string_view end);
  absl::Status ExpectTagEnd();
  absl::StatusOr<StatementPtr> ParseTag();
  absl::StatusOr<StatementPtr> ParseIf();
  absl::StatusOr<StatementPtr> ParseFor();
  absl::StatusOr<StatementPtr> ParseSet();
  absl::StatusOr<StatementPtr> ParseMacro();
  absl::StatusOr<StatementPtr> ParseCallBlock();
  absl::StatusOr<StatementPtr> ParseFilterBlock();
  absl::StatusOr<StatementPtr> ParseWith();
  absl::StatusOr<StatementPtr> ParseBlock();
  absl::StatusOr<StatementPtr> ParseGeneration();
  absl::StatusOr<StatementPtr> ParseAutoescape();
  absl::StatusOr<StatementPtr> ParsePrint();
  absl::StatusOr<StatementPtr> ParseLoopControl();
  absl::StatusOr<StatementPtr> ParseUnavailable();
  absl::Status ParseSignature(MacroDefinition* macro);
  absl::Status ParseMacroBody(std::string_view end, MacroDefinition* macro);
  absl::StatusOr<Target> ParseTarget(bool with_attributes);
  absl::StatusOr<Target> ParseOneTarget(bool with_attributes);

  // Jinja refuses an unknown filter or test when it compiles a program, but not within a
  // conditional, where `is filter` may guard it. Unknown names are noted in unknown_; a conditional
  // forgets those noted within it, and the end of a scope reports those that are left.
  void NoteIfUnknown(bool known, const char* what, const std::string& name, int line);
  absl::Status ReportUnknown(size_t since) const;

  const std::vector<Token> tokens_;
  const KnownNames& known_;
  size_t at_ = 0;
  int nesting_ = 0;
  int fors_ = 0;                      // enclosing for blocks
  bool in_loop_ = false;              // break and continue are allowed
  std::vector<std::string> unknown_;  // messages with lines
  // Special variables of macros that were named since the innermost macro began.
  bool names_caller_ = false, names_varargs_ = false, names_kwargs_ = false;
  std::map<std::string, int, std::less<>> name_indices_;
  std::vector<std::string> blocks_;
  Syntax syntax_;
};

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_SYNTAX_PARSER_H_

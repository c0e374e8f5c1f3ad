// Cuts the text of a Jinja program into tokens. Jinja's trim_blocks and lstrip_blocks are on, as in
// transformers.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_SYNTAX_LEXER_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_SYNTAX_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain::jinja {

// A token. `kind` says which of its values are set.
struct Token {
  enum class Kind {
    kData,           // text outside of tags; `text`
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kName,           // `text`
    kString,         // `text`, unescaped
    kInteger,        // `integer`, and `text` as it is written
    kFloat,          // `number`, and `text` as it is written
    kOperator,       // `text`: + - * / // % ** ~ [ ] ( ) { } == != > >= < <= = . : | , ;
    kEnd,            // the end of the program
  };

  Kind kind = Kind::kEnd;
  int line = 1;  // on which it begins, from 1
  std::string text;
  int64_t integer = 0;
  double number = 0;

  bool Is(Kind k) const { return kind == k; }
  bool IsName(std::string_view name) const { return kind == Kind::kName && text == name; }
  bool IsOperator(std::string_view op) const { return kind == Kind::kOperator && text == op; }
};

// Describes a token for messages: "'x'" for a name, "the string 'x'", "'%}'", "the end of the
// program". Of a long token it has the first 40 characters.
std::string Describe(const Token& token);

// Returns an error at a line: InvalidArgument "line 3: message".
absl::Status SyntaxError(int line, std::string_view message);

// Returns all tokens, with kEnd as the last. Newlines are made "\n", and one at the end of the
// program is dropped. Comments, and the tags of {% raw %}, leave no token. After a tag without an
// end comes kEnd, and the parser refuses it. Returns InvalidArgument with the line for text that is
// not in the language, and for an integer above 2^63 - 1. REQUIRES: `program` is well-formed UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view program);

// Returns the value of the string literal whose text between its quotes is `body`. Returns
// InvalidArgument, without a line, for an escape sequence that Python refuses, and for one of a
// lone surrogate. REQUIRES: `body` is well-formed UTF-8.
absl::StatusOr<std::string> Unescape(std::string_view body);

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_SYNTAX_LEXER_H_

#include "engine/chat/jinja/syntax/lexer.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/python/number_text.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::jinja {
namespace {

using Kind = Token::Kind;

std::string NormalizeNewlines(std::string_view program) {
  std::string result;
  result.reserve(program.size());
  for (size_t at = 0; at < program.size(); ++at) {
    if (program[at] != '\r') {
      result += program[at];
    } else {
      result += '\n';
      if (at + 1 < program.size() && program[at + 1] == '\n') ++at;
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }

// Bytes of a name; those from 0x80 on are checked when the name is whole.
bool IsWordByte(char byte) {
  return IsDigit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         byte == '_' || byte < 0;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), rest_(source_) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < rest_.size()) MT_RETURN_IF_ERROR(TakeDataAndTag());
    Add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::Status Error(std::string_view message) { return SyntaxError(line_, message); }

  Token& Add(Kind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text)});
    return tokens_.back();
  }
  void AddData(std::string_view text) {
    if (!text.empty()) Add(Kind::kData, text);
  }

  std::string_view ahead() const { return rest_.substr(at_); }
  bool Sees(std::string_view text) const { return ahead().substr(0, text.size()) == text; }

  // Moves forward by `bytes` and counts lines. `line_start_` is what Jinja calls line_starting: the
  // last match ended with a newline.
  void Skip(size_t bytes) {
    const std::string_view skipped = rest_.substr(at_, bytes);
    line_ += static_cast<int>(std::count(skipped.begin(), skipped.end(), '\n'));
    at_ += bytes;
    if (!skipped.empty()) line_start_ = skipped.back() == '\n';
  }
  size_t SpacesFrom(size_t at) const {
    size_t end = at;
    while (end < rest_.size() && python::IsSpace(Utf8At(rest_, end))) end += Utf8Length(rest_[end]);
    return end - at;
  }

  // Drops what the sign of a tag, or lstrip_blocks, drops at the end of the text before it.
  std::string_view StripBefore(std::string_view data, char sign, bool block) const {
    if (sign == '-') return python::Strip(data, nullptr, false, true);
    if (sign == '+' || !block) return data;
    const size_t line = data.rfind('\n') + 1;
    if (line == 0 && !line_start_) return data;
    return python::Strip(data.substr(line), nullptr, true, false).empty() ? data.substr(0, line)
                                                                          : data;
  }

  // The bytes of an end tag of a block or comment at `at`, with what it drops after it: "-%}" all
  // white space, "%}" one newline (trim_blocks), "+%}" nothing. 0 if there is none.
  size_t BlockEndBytes(size_t at, std::string_view end) const {
    const std::string_view text = rest_.substr(at);
    const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
    if (text.substr(sign, end.size()) != end) return 0;
    const size_t bytes = sign + end.size();
    if (!sign) return bytes + (text.substr(bytes, 1) == "\n");
    return text[0] == '-' ? bytes + SpacesFrom(at + bytes) : bytes;
  }

  // The bytes of a tag {% name %} at `at` up to its "%}" or "-%}", or 0 if it is another tag.
  size_t TagNameBytes(size_t at, std::string_view name) const {
    size_t end = at + 2;
    if (end < rest_.size() && (rest_[end] == '-' || rest_[end] == '+')) ++end;
    end += SpacesFrom(end);
    if (rest_.substr(end, name.size()) != name) return 0;
    end += name.size();
    return end + SpacesFrom(end) - at;
  }

  absl::Status TakeDataAndTag() {
    size_t open = at_;
    while (true) {
      open = rest_.find('{', open);
      if (open == std::string_view::npos) {
        AddData(ahead());
        Skip(rest_.size() - at_);
        return absl::OkStatus();
      }
      const std::string_view tag = rest_.substr(open, 2);
      if (tag == "{{" || tag == "{%" || tag == "{#") break;
      ++open;
    }
    const char type = rest_[open + 1];
    const char sign = open + 2 < rest_.size() ? rest_[open + 2] : '\0';
    const bool signed_tag = sign == '-' || sign == '+';
    AddData(StripBefore(rest_.substr(at_, open - at_), sign, type != '{'));
    Skip(open - at_);
    if (type == '%') {
      if (const size_t name = TagNameBytes(at_, "raw"); name != 0) {
        size_t end = 0;
        if (rest_.substr(at_ + name, 3) == "-%}") {
          end = name + 3 + SpacesFrom(at_ + name + 3);
        } else if (rest_.substr(at_ + name, 2) == "%}") {
          end = name + 2;
        }
        if (end != 0) {
          Skip(end);
          return TakeRaw();
        }
      }
    }
    Skip(signed_tag ? 3 : 2);
    if (type == '#') return TakeComment();
    Add(type == '%' ? Kind::kBlockBegin : Kind::kVariableBegin, "");
    return TakeTag(type == '%');
  }

  absl::Status TakeComment() {
    for (size_t end = at_; end < rest_.size(); ++end) {
      const char byte = rest_[end];
      if (byte != '#' && byte != '-' && byte != '+') continue;
      const size_t bytes = BlockEndBytes(end, "#}");
      if (bytes == 0) continue;
      Skip(end + bytes - at_);
      return absl::OkStatus();
    }
    // As in Jinja, the end may be missing at the end of the program.
    return at_ == rest_.size() ? absl::OkStatus() : Error("a comment without an end");
  }

  absl::Status TakeRaw() {
    for (size_t open = rest_.find("{%", at_); open != std::string_view::npos;
         open = rest_.find("{%", open + 2)) {
      const size_t name = TagNameBytes(open, "endraw");
      const size_t end = name == 0 ? 0 : BlockEndBytes(open + name, "%}");
      if (end == 0) continue;
      AddData(StripBefore(rest_.substr(at_, open - at_), rest_[open + 2], true));
      Skip(open + name + end - at_);
      return absl::OkStatus();
    }
    return at_ == rest_.size() ? absl::OkStatus() : Error("a raw block without an end");
  }

  // Takes the tokens of a tag up to its end. Within brackets the end is not looked for.
  absl::Status TakeTag(bool block) {
    std::string brackets;
    while (at_ < rest_.size()) {
      if (brackets.empty()) {
        size_t end = block ? BlockEndBytes(at_, "%}") : 0;
        if (!block && Sees("-}}")) end = 3 + SpacesFrom(at_ + 3);
        if (!block && Sees("}}")) end = 2;
        if (end != 0) {
          Add(block ? Kind::kBlockEnd : Kind::kVariableEnd, "");
          Skip(end);
          return absl::OkStatus();
        }
      }
      if (const size_t spaces = SpacesFrom(at_); spaces != 0) {
        Skip(spaces);
      } else if (IsDigit(rest_[at_])) {
        MT_RETURN_IF_ERROR(TakeNumber());
      } else if (IsWordByte(rest_[at_])) {
        MT_RETURN_IF_ERROR(TakeName());
      } else if (rest_[at_] == '\'' || rest_[at_] == '"') {
        MT_RETURN_IF_ERROR(TakeString());
      } else {
        MT_RETURN_IF_ERROR(TakeOperator(&brackets));
      }
    }
    // The parser reports the missing end.
    return absl::OkStatus();
  }

  absl::Status TakeName() {
    size_t end = at_;
    while (end < rest_.size() && IsWordByte(rest_[end])) ++end;
    const std::string_view name = rest_.substr(at_, end - at_);
    if (!python::IsOfClass(name, python::TextClass::kIdentifier)) {
      return Error(absl::StrCat("'", ToAbsl(name.substr(0, 80)), "' is not a name"));
    }
    Add(Kind::kName, name);
    Skip(name.size());
    return absl::OkStatus();
  }

  // The end of a run of digits with single underscores between them, or `at` if there is none.
  size_t DigitsEnd(size_t at, std::string_view digits) const {
    const auto digit = [&](size_t i) {
      return i < rest_.size() && digits.find(rest_[i]) != std::string_view::npos;
    };
    if (!digit(at)) return at;
    while (digit(at) || (at < rest_.size() && rest_[at] == '_' && digit(at + 1))) ++at;
    return at;
  }

  // The end of a float at the cursor, if there is one.
  std::optional<size_t> FloatEnd() const {
    constexpr std::string_view kDecimal = "0123456789";
    if (at_ > 0 && rest_[at_ - 1] == '.') return std::nullopt;
    size_t end = DigitsEnd(at_, kDecimal);
    bool is_float = false;
    if (end < rest_.size() && rest_[end] == '.' && DigitsEnd(end + 1, kDecimal) != end + 1) {
      end = DigitsEnd(end + 1, kDecimal);
      is_float = true;
    }
    if (end < rest_.size() && (rest_[end] | 0x20) == 'e') {
      size_t exponent = end + 1;
      if (exponent < rest_.size() && (rest_[exponent] == '+' || rest_[exponent] == '-')) ++exponent;
      if (DigitsEnd(exponent, kDecimal) != exponent) return DigitsEnd(exponent, kDecimal);
    }
    return is_float ? std::optional<size_t>(end) : std::nullopt;
  }

  size_t IntegerEnd() const {
    if (rest_[at_] != '0') return DigitsEnd(at_, "0123456789");
    const char letter = at_ + 1 < rest_.size() ? rest_[at_ + 1] | 0x20 : '\0';
    const std::string_view digits = letter == 'b'   ? "01"
                                    : letter == 'o' ? "01234567"
                                    : letter == 'x' ? "0123456789abcdefABCDEF"
                                                    : "";
    if (!digits.empty()) {
      const size_t first = at_ + 2 + (rest_.substr(at_ + 2, 1) == "_");
      if (DigitsEnd(first, digits) != first) return DigitsEnd(first, digits);
    }
    return DigitsEnd(at_, "0");
  }

  absl::Status TakeNumber() {
    if (const std::optional<size_t> end = FloatEnd(); end.has_value()) {
      const std::string_view text = rest_.substr(at_, *end - at_);
      Add(Kind::kFloat, text).number = python::ParseFloat(text).value_or(0);
      Skip(text.size());
      return absl::OkStatus();
    }
    const std::string_view text = rest_.substr(at_, IntegerEnd() - at_);
    const absl::StatusOr<std::optional<int64_t>> value = python::ParseInt(text, 0);
    if (!value.ok()) {
      return Error(
          std::string_view(value.status().message().data(), value.status().message().size()));
    }
    Add(Kind::kInteger, text).integer = value->value_or(0);
    Skip(text.size());
    return absl::OkStatus();
  }

  absl::Status TakeString() {
    const char quote = rest_[at_];
    size_t end = at_ + 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return Error("a string without an end");
    absl::StatusOr<std::string> value = Unescape(rest_.substr(at_ + 1, end - at_ - 1));
    if (!value.ok()) {
      return Error(
          std::string_view(value.status().message().data(), value.status().message().size()));
    }
    Add(Kind::kString, *value);
    Skip(end + 1 - at_);
    return absl::OkStatus();
  }

  absl::Status TakeOperator(std::string* brackets) {
    constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                               "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                               ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!Sees(op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        *brackets += op == "(" ? ')' : op == "[" ? ']' : '}';
      } else if (op == ")" || op == "]" || op == "}") {
        if (brackets->empty()) return Error(absl::StrCat("unexpected '", ToAbsl(op), "'"));
        if (brackets->back() != op[0]) {
          return Error(absl::StrCat("unexpected '", ToAbsl(op), "', expected '",
                                    brackets->substr(brackets->size() - 1), "'"));
        }
        brackets->pop_back();
      }
      Add(Kind::kOperator, op);
      Skip(op.size());
      return absl::OkStatus();
    }
    return Error(absl::StrCat("unexpected character '",
                              ToAbsl(rest_.substr(at_, Utf8Length(rest_[at_]))), "'"));
  }

  const std::string source_;
  const std::string_view rest_;  // all of source_
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string Describe(const Token& token) {
  switch (token.kind) {
    case Kind::kData:
      return "text";
    case Kind::kBlockBegin:
      return "'{%'";
    case Kind::kBlockEnd:
      return "'%}'";
    case Kind::kVariableBegin:
      return "'{{'";
    case Kind::kVariableEnd:
      return "'}}'";
    case Kind::kEnd:
      return "the end of the program";
    default:
      return absl::StrCat(token.kind == Kind::kString ? "the string '" : "'",
                          ToAbsl(python::SubPoints(token.text, 0, 40)), "'");
  }
}

absl::Status SyntaxError(int line, std::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", ToAbsl(message)));
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view program) {
  return Lexer(NormalizeNewlines(program)).Run();
}

}  // namespace megatrain::jinja

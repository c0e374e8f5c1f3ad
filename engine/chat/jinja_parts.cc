#include "engine/chat/jinja_parts.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

constexpr std::string_view kSpace = " \t\n\r\f\v";

bool IsSpace(char c) { return kSpace.find(c) != std::string_view::npos; }

// Bytes of characters outside of ASCII are parts of names.
bool IsWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool IsQuote(char c) { return c == '\'' || c == '"'; }

bool EndsOperand(char c) { return IsWord(c) || IsQuote(c) || c == ')' || c == ']'; }

bool BeginsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// As Jinja reads a source: line ends are \n, and the last one is dropped.
std::string NormalisedLines(std::string_view program) {
  std::string out;
  for (size_t i = 0; i < program.size(); ++i) {
    if (program[i] == '\r') {
      if (i + 1 < program.size() && program[i + 1] == '\n') continue;
      out.push_back('\n');
    } else {
      out.push_back(program[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// The name in ['name'] at `at`, behind which `at` is then; "" if that is something else.
std::string_view NamedItem(std::string_view text, size_t* at) {
  const auto past_space = [&](size_t i) { return text.find_first_not_of(kSpace, i); };
  const size_t open = past_space(*at + 1);
  if (open == std::string_view::npos || !IsQuote(text[open])) return "";
  size_t close = open + 1;
  while (close < text.size() && IsWord(text[close])) ++close;
  if (close == text.size() || text[close] != text[open]) return "";
  const size_t end = past_space(close + 1);
  if (end == std::string_view::npos || text[end] != ']') return "";
  *at = end + 1;
  return text.substr(open + 1, close - open - 1);
}

// Reads the string literal at `at`, behind which `at` is then, and appends it. False: no end.
bool AppendString(std::string_view text, size_t* at, std::string* out) {
  const char quote = text[(*at)++];
  out->push_back('\'');
  while (*at < text.size() && text[*at] != quote) {
    char c = text[(*at)++];
    if (c == '\\' && *at < text.size()) {
      c = text[(*at)++];
      if (c != '"') out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n') {
      *out += "\\n";
    } else {
      if (c == '\'') out->push_back('\\');
      out->push_back(c);
    }
  }
  if (*at == text.size()) return false;
  ++*at;
  out->push_back('\'');
  return true;
}

struct Tag {
  std::string text;     // "" for a comment
  char left_sign = 0;   // '-', '+' or 0
  char right_sign = 0;  // likewise
};

// Returns where the first tag at `from` or after it begins; npos if there is none.
size_t FindTag(std::string_view text, size_t from) {
  for (size_t at = text.find('{', from); at != std::string_view::npos;
       at = text.find('{', at + 1)) {
    const std::string_view opening = text.substr(at, 2);
    if (opening == "{{" || opening == "{%" || opening == "{#") return at;
  }
  return std::string_view::npos;
}

char SignAt(std::string_view text, size_t at) {
  return at < text.size() && (text[at] == '-' || text[at] == '+') ? text[at] : 0;
}

// The tag whose opening is at `at`; behind its end is `at` then. Nothing if it has no end.
std::optional<Tag> ReadTag(std::string_view text, size_t* at) {
  const std::string_view opening = text.substr(*at, 2);
  *at += 2;
  Tag tag;
  tag.left_sign = SignAt(text, *at);
  if (tag.left_sign != 0) ++*at;
  if (opening == "{#") {
    const size_t end = text.find("#}", *at);
    if (end == std::string_view::npos) return std::nullopt;
    if (end > *at) tag.right_sign = SignAt(text, end - 1);
    *at = end + 2;
    return tag;
  }
  const std::string_view closing = opening == "{%" ? "%}" : "}}";
  std::string body;
  bool space = false;
  for (int braces = 0; *at < text.size();) {
    const char c = text[*at];
    const char sign = SignAt(text, *at);
    if (braces == 0 && text.substr(*at + (sign != 0 ? 1 : 0), 2) == closing) {
      tag.right_sign = sign;
      *at += sign != 0 ? 3 : 2;
      tag.text = absl::StrCat(ToAbsl(opening), body, ToAbsl(closing));
      return tag;
    }
    if (IsSpace(c)) {
      space = true;
      ++*at;
      continue;
    }
    const bool after_operand = !body.empty() && EndsOperand(body.back());
    if (space && after_operand && (IsWord(c) || IsQuote(c))) body.push_back(' ');
    if (IsQuote(c)) {
      if (!AppendString(text, at, &body)) return std::nullopt;
    } else if (const std::string_view name =
                   c == '[' && after_operand && !space ? NamedItem(text, at) : "";
               !name.empty()) {
      absl::StrAppend(&body, ".", ToAbsl(name));
    } else {
      if (c == '{') ++braces;
      if (c == '}') --braces;
      body.push_back(c);
      ++*at;
    }
    space = false;
  }
  return std::nullopt;
}

// Returns the part of `text`, which stands before `tag`, that the program writes. `line_begins`
// says that `text` begins a line.
std::string_view Written(std::string_view text, const Tag& tag, bool is_expression,
                         bool line_begins) {
  if (tag.left_sign == '-') {
    return text.substr(0, text.find_last_not_of(kSpace) + 1);
  }
  if (is_expression || tag.left_sign == '+') return text;
  // lstrip_blocks: the white space between a line's beginning and the tag.
  const size_t line = text.rfind('\n') + 1;
  if (line == 0 && !line_begins) return text;
  if (text.find_first_not_of(kSpace, line) != std::string_view::npos) return text;
  return text.substr(0, line);
}

}  // namespace

absl::StatusOr<JinjaParts> JinjaParts::Parse(std::string_view program) {
  const std::string source = NormalisedLines(program);
  const std::string_view text = source;
  std::vector<std::string> parts;
  size_t at = 0;
  bool line_begins = true;
  while (at < text.size()) {
    const size_t open = FindTag(text, at);
    if (open == std::string_view::npos) {
      parts.emplace_back(text.substr(at));
      break;
    }
    const std::string_view before = text.substr(at, open - at);
    const bool is_expression = text[open + 1] == '{';
    at = open;
    const std::optional<Tag> tag = ReadTag(text, &at);
    if (!tag.has_value()) {
      return absl::InvalidArgumentError("a tag in it has no end");
    }
    if (tag->text == "{%raw%}") return absl::UnimplementedError("it has {% raw %}");
    const std::string_view written = Written(before, *tag, is_expression, line_begins);
    if (!written.empty()) parts.emplace_back(written);
    if (!tag->text.empty()) parts.push_back(tag->text);
    const size_t end = at;
    if (tag->right_sign == '-') {
      at = std::min(text.find_first_not_of(kSpace, at), text.size());
    } else if (!is_expression && tag->right_sign != '+' && at < text.size() && text[at] == '\n') {
      ++at;  // trim_blocks
    }
    line_begins = at > end && text[at - 1] == '\n';
  }
  return JinjaParts(std::move(parts));
}

bool JinjaParts::writes_text() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const std::string& part) {
    return !BeginsWith(part, "{{") && !BeginsWith(part, "{%");
  });
}

bool JinjaParts::Take(std::string_view part) {
  if (done() || parts_[next_] != part) return false;
  ++next_;
  return true;
}

bool JinjaParts::TakeAll(std::initializer_list<std::string_view> parts) {
  return std::all_of(parts.begin(), parts.end(), [this](std::string_view p) { return Take(p); });
}

bool JinjaParts::TakeRaise() {
  // One string: its end is the first quote that is not escaped.
  constexpr std::string_view kStart = "{{raise_exception('";
  constexpr std::string_view kEnd = "')}}";
  const std::string_view part = next();
  if (!BeginsWith(part, kStart) || !EndsWith(part, kEnd)) return false;
  for (size_t i = kStart.size(); i + kEnd.size() < part.size(); ++i) {
    if (part[i] == '\'') return false;
    if (part[i] == '\\') ++i;
  }
  ++next_;
  return true;
}

bool JinjaParts::SkipBranch() {
  int depth = 0;
  for (; !done(); ++next_) {
    const std::string_view part = next();
    const bool ends = BeginsWith(part, "{%endif") || BeginsWith(part, "{%endfor");
    if (depth == 0 && (ends || BeginsWith(part, "{%elif") || part == "{%else%}")) return true;
    if (ends) --depth;
    if (BeginsWith(part, "{%if") || BeginsWith(part, "{%for")) ++depth;
  }
  return false;
}

}  // namespace megatrain

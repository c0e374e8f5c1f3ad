// The escape sequences of string literals: Jinja decodes them with Python's codec unicode_escape.
#include <unicode/uchar.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/syntax/lexer.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::jinja {
namespace {

constexpr std::string_view kSimple = "\\'\"abfnrtv";
constexpr std::string_view kSimpleValues = "\\'\"\a\b\f\n\r\t\v";

int HexValue(char byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  const char lower = byte | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

absl::Status AppendPoint(uint32_t point, std::string* result) {
  if (point > 0x10ffff) return absl::InvalidArgumentError("illegal Unicode character in a string");
  if (point >= 0xd800 && point < 0xe000) {
    return absl::InvalidArgumentError("a lone surrogate in a string");
  }
  AppendUtf8(point, result);
  return absl::OkStatus();
}

// Takes the `digits` hexadecimal digits at the front of `body`.
absl::Status TakeHex(size_t digits, std::string_view* body, std::string* result) {
  uint32_t point = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int value = i < body->size() ? HexValue((*body)[i]) : -1;
    if (value < 0) return absl::InvalidArgumentError("a truncated \\x, \\u or \\U escape");
    point = point << 4 | static_cast<uint32_t>(value);
  }
  body->remove_prefix(digits);
  return AppendPoint(point, result);
}

// Takes {NAME} at the front of `body`.
absl::Status TakeNamed(std::string_view* body, std::string* result) {
  const size_t end = body->find('}');
  if (body->empty() || (*body)[0] != '{' || end == std::string_view::npos) {
    return absl::InvalidArgumentError("a malformed \\N escape");
  }
  const std::string name(body->substr(1, end - 1));
  UErrorCode error = U_ZERO_ERROR;
  UChar32 point = u_charFromName(U_UNICODE_CHAR_NAME, name.c_str(), &error);
  if (U_FAILURE(error)) {
    error = U_ZERO_ERROR;
    point = u_charFromName(U_CHAR_NAME_ALIAS, name.c_str(), &error);
  }
  if (U_FAILURE(error)) return absl::InvalidArgumentError("unknown Unicode character name");
  body->remove_prefix(end + 1);
  return AppendPoint(static_cast<uint32_t>(point), result);
}

// Takes an escape sequence, of which the backslash is taken.
absl::Status TakeEscape(std::string_view* body, std::string* result) {
  const char letter = (*body)[0];
  if (letter >= '0' && letter <= '7') {
    uint32_t point = 0;
    for (int i = 0; i < 3 && !body->empty() && (*body)[0] >= '0' && (*body)[0] <= '7'; ++i) {
      point = point << 3 | static_cast<uint32_t>((*body)[0] - '0');
      body->remove_prefix(1);
    }
    return AppendPoint(point, result);
  }
  if (letter < 0) {
    // The text is made ASCII before it is decoded, so that this backslash escapes another one.
    const uint32_t point = Utf8At(*body, 0);
    absl::StrAppend(result, "\\",
                    point < 0x100     ? absl::StrFormat("x%02x", point)
                    : point < 0x10000 ? absl::StrFormat("u%04x", point)
                                      : absl::StrFormat("U%08x", point));
    body->remove_prefix(Utf8Length(letter));
    return absl::OkStatus();
  }
  body->remove_prefix(1);
  if (letter == '\n') return absl::OkStatus();  // a line that goes on
  if (const size_t simple = kSimple.find(letter); simple != std::string_view::npos) {
    *result += kSimpleValues[simple];
    return absl::OkStatus();
  }
  if (letter == 'x') return TakeHex(2, body, result);
  if (letter == 'u') return TakeHex(4, body, result);
  if (letter == 'U') return TakeHex(8, body, result);
  if (letter == 'N') return TakeNamed(body, result);
  *result += {'\\', letter};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> Unescape(std::string_view body) {
  std::string result;
  while (!body.empty()) {
    const size_t plain = std::min(body.find('\\'), body.size());
    result.append(body.substr(0, plain));
    body.remove_prefix(plain);
    if (body.empty()) break;
    body.remove_prefix(1);
    if (body.empty()) return absl::InvalidArgumentError("a backslash at the end of a string");
    MT_RETURN_IF_ERROR(TakeEscape(&body, &result));
  }
  return result;
}

}  // namespace megatrain::jinja

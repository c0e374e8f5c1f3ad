// Validates and decodes UTF-8.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_UTF8_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

// Returns the offset of the first byte that is not part of well-formed UTF-8, or text.size() if
// there is none. Surrogates, overlong forms and code points above U+10FFFF are not well-formed.
size_t Utf8ValidPrefix(std::string_view text);

// Returns OK, or InvalidArgument "invalid UTF-8 at byte N (0xHH)".
absl::Status CheckUtf8(std::string_view text);

// Returns the number of bytes of the character whose first byte is `lead`. REQUIRES: well-formed
// text.
constexpr size_t Utf8Length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// Returns the code point at `offset`. REQUIRES: well-formed text, and a character begins there.
inline char32_t Utf8At(std::string_view text, size_t offset) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + offset;
  switch (Utf8Length(p[0])) {
    case 1:
      return p[0];
    case 2:
      return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    case 3:
      return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    default:
      return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
  }
}

// Returns the offset of the character that ends at `offset`. REQUIRES: well-formed text, offset >
// 0.
size_t Utf8Before(std::string_view text, size_t offset);

// Appends the UTF-8 of `code_point` to `text`. REQUIRES: `code_point` is at most U+10FFFF and not a
// surrogate.
void AppendUtf8(char32_t code_point, std::string* text);

// Returns true if the character has Unicode's property White_Space.
bool IsWhiteSpace(char32_t code_point);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_UTF8_H_

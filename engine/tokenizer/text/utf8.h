// UTF-8: validation and code points.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_UTF8_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

// The offset of the first byte that is not part of well-formed UTF-8 (no surrogates, no overlong
// forms, at most U+10FFFF), or text.size() if all of it is.
size_t Utf8ValidPrefix(std::string_view text);

// OK, or InvalidArgument "invalid UTF-8 at byte N (0xHH)".
absl::Status CheckUtf8(std::string_view text);

// Bytes of the character that begins with `lead`. REQUIRES: well-formed text.
constexpr size_t Utf8Length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// The code point at `offset`. REQUIRES: well-formed text, a character begins at `offset`.
char32_t Utf8At(std::string_view text, size_t offset);

// The offset of the character that ends before `offset`. REQUIRES: well-formed text, offset > 0.
size_t Utf8Before(std::string_view text, size_t offset);

// REQUIRES: a code point, not a surrogate.
void AppendUtf8(char32_t code_point, std::string* text);

// Unicode's White_Space property.
bool IsWhiteSpace(char32_t code_point);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_UTF8_H_

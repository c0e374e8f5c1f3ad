// Maps bytes to printable characters and back, as GPT-2 does. So any byte string can be written as
// text.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_BYTE_UNICODE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_BYTE_UNICODE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain {

// Returns the character for `byte`. Printable Latin-1 ('!' to '~', U+00A1 to U+00AC, U+00AE to
// U+00FF) is unchanged; the other 68 bytes become U+0100, U+0101, ... in their order.
char32_t ByteToUnicode(uint8_t byte);

// Returns the byte that `code_point` stands for, or -1 if it stands for none.
int UnicodeToByte(char32_t code_point);

// Sets `bytes` to the bytes that the characters of `token` stand for. Returns false, with `bytes`
// unspecified, if one of them stands for none. REQUIRES: `token` is well-formed UTF-8.
bool TokenToBytes(std::string_view token, std::string* bytes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_BYTE_UNICODE_H_

// GPT-2's way to write any byte string as text: each byte has a printable character of its own.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_BYTE_UNICODE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_BYTE_UNICODE_H_

#include <cstdint>

namespace megatrain {

// The character that stands for `byte`: printable Latin-1 stands for itself ('!' to '~', U+00A1 to
// U+00AC, U+00AE to U+00FF), the other 68 bytes are U+0100, U+0101, ... in their order.
char32_t ByteToUnicode(uint8_t byte);

// The byte that `code_point` stands for, or -1.
int UnicodeToByte(char32_t code_point);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_BYTE_UNICODE_H_

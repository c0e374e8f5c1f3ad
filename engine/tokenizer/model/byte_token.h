// Converts bytes to the tokens "<0x00>" to "<0xFF>" and back. These tokens stand for the bytes of
// characters that are not in the vocabulary.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_BYTE_TOKEN_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_BYTE_TOKEN_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain {

// Returns the token of a byte: "<0x0A>" for 10.
std::string ByteToken(uint8_t byte);

// Returns the byte that `token` stands for, or -1 if it is not a byte token. Lower-case hexadecimal
// digits are accepted too.
int ByteOfToken(std::string_view token);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_BYTE_TOKEN_H_

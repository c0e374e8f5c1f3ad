// The tokens "<0x00>" to "<0xFF>", which stand for a byte of a character that is no token.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_BYTE_TOKEN_H_
#define MEGATRAIN_ENGINE_TOKENIZER_BYTE_TOKEN_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain {

// "<0x0A>" for 10.
std::string ByteToken(uint8_t byte);

// The byte that `token` stands for when it is decoded, where the digits may be small letters too;
// -1 if it is no such token.
int ByteOfToken(std::string_view token);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_BYTE_TOKEN_H_

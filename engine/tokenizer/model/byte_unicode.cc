#include "engine/tokenizer/model/byte_unicode.h"

#include <array>

#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// 256 + the 68 bytes that do not stand for themselves: characters are below U+0144.
constexpr int kCharacters = 256 + 68;

struct Tables {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, kCharacters> byte{};
};

constexpr Tables MakeTables() {
  Tables tables;
  for (auto& byte : tables.byte) byte = -1;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = StandsForItself(byte) ? byte : next++;
    tables.character[byte] = static_cast<uint16_t>(character);
    tables.byte[character] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

char32_t ByteToUnicode(uint8_t byte) { return kTables.character[byte]; }

int UnicodeToByte(char32_t code_point) {
  return code_point < kCharacters ? kTables.byte[code_point] : -1;
}

bool TokenToBytes(std::string_view token, std::string* bytes) {
  bytes->clear();
  for (size_t at = 0; at < token.size();) {
    const int byte = UnicodeToByte(Utf8At(token, at));
    if (byte < 0) return false;
    bytes->push_back(static_cast<char>(byte));
    at += Utf8Length(static_cast<unsigned char>(token[at]));
  }
  return true;
}

}  // namespace megatrain

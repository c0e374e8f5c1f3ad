#include "engine/tokenizer/text/utf8.h"

#include <cstring>

#include "absl/strings/str_format.h"

namespace megatrain {
namespace {

bool IsContinuation(unsigned char byte) { return (byte & 0xc0) == 0x80; }

// Bytes of the well-formed character at `p`, 0 if there is none (Unicode's table 3-7).
size_t WellFormedLength(const unsigned char* p, size_t left) {
  const unsigned char lead = p[0];
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return left >= 2 && IsContinuation(p[1]) ? 2 : 0;
  if (lead < 0xf0) {
    if (left < 3 || !IsContinuation(p[1]) || !IsContinuation(p[2])) return 0;
    if (lead == 0xe0 && p[1] < 0xa0) return 0;  // overlong
    if (lead == 0xed && p[1] > 0x9f) return 0;  // surrogates
    return 3;
  }
  if (lead > 0xf4) return 0;
  if (left < 4 || !IsContinuation(p[1]) || !IsContinuation(p[2]) || !IsContinuation(p[3])) return 0;
  if (lead == 0xf0 && p[1] < 0x90) return 0;  // overlong
  if (lead == 0xf4 && p[1] > 0x8f) return 0;  // above U+10FFFF
  return 4;
}

}  // namespace

size_t Utf8ValidPrefix(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const size_t size = text.size();
  size_t at = 0;
  while (at < size) {
    // Eight ASCII bytes at a time.
    uint64_t word = 0;
    while (at + 8 <= size) {
      std::memcpy(&word, bytes + at, 8);
      if ((word & 0x8080808080808080u) != 0) break;
      at += 8;
    }
    if (at == size) break;
    const size_t length = WellFormedLength(bytes + at, size - at);
    if (length == 0) return at;
    at += length;
  }
  return size;
}

absl::Status CheckUtf8(std::string_view text) {
  const size_t valid = Utf8ValidPrefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("invalid UTF-8 at byte %d (0x%02x)", valid,
                                                    static_cast<unsigned char>(text[valid])));
}

size_t Utf8Before(std::string_view text, size_t offset) {
  --offset;
  while (offset > 0 && IsContinuation(static_cast<unsigned char>(text[offset]))) --offset;
  return offset;
}

void AppendUtf8(char32_t code_point, std::string* text) {
  const auto put = [text](char32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
    put(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  } else {
    put(0xf0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3f));
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  }
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

}  // namespace megatrain

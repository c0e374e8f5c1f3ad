// Case mappings of python/unicode_text.h, by ICU.
#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::python {
namespace {

enum class Mapping { kUpper, kLower, kTitle, kFold };

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char byte) { return byte >= 0; });
}

char AsciiUpper(char byte) { return byte >= 'a' && byte <= 'z' ? byte - 32 : byte; }
char AsciiLower(char byte) { return byte >= 'A' && byte <= 'Z' ? byte + 32 : byte; }

// Maps one stretch of at most kStretchBytes, so that ICU's 32-bit sizes suffice.
std::string MapWithIcu(std::string_view text, Mapping mapping) {
  // UTF-16 has at most one unit a byte, and a mapping at most three units for one.
  std::vector<UChar> from(text.size() + 1), to(3 * text.size() + 1);
  UErrorCode error = U_ZERO_ERROR;
  int32_t size = 0;
  u_strFromUTF8(from.data(), from.size(), &size, text.data(), text.size(), &error);
  switch (mapping) {
    case Mapping::kUpper:
      size = u_strToUpper(to.data(), to.size(), from.data(), size, "", &error);
      break;
    case Mapping::kLower:
      size = u_strToLower(to.data(), to.size(), from.data(), size, "", &error);
      break;
    case Mapping::kTitle:
      size = u_strToTitle(to.data(), to.size(), from.data(), size, nullptr, "", &error);
      break;
    case Mapping::kFold:
      size = u_strFoldCase(to.data(), to.size(), from.data(), size, U_FOLD_CASE_DEFAULT, &error);
      break;
  }
  std::string result(3 * static_cast<size_t>(size), '\0');
  int32_t bytes = 0;
  u_strToUTF8(result.data(), result.size(), &bytes, to.data(), size, &error);
  // ICU does not fail on well-formed text with enough room; without it the text stays as it is.
  if (U_FAILURE(error)) return std::string(text);
  result.resize(bytes);
  return result;
}

std::string Map(std::string_view text, Mapping mapping) {
  if (IsAscii(text) && mapping != Mapping::kTitle) {
    std::string result(text);
    for (char& byte : result)
      byte = mapping == Mapping::kUpper ? AsciiUpper(byte) : AsciiLower(byte);
    return result;
  }
  constexpr size_t kStretchBytes = 64 << 20;
  std::string result;
  while (!text.empty()) {
    size_t cut = std::min(text.size(), kStretchBytes);
    while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
    result += MapWithIcu(text.substr(0, cut), mapping);
    text.remove_prefix(cut);
  }
  return result;
}

// Maps one character to title case. ICU's u_strToTitle skips to the first letter, which a single
// character cannot be misled by.
std::string TitlePoint(std::string_view character) {
  if (IsAscii(character)) return std::string(1, AsciiUpper(character[0]));
  return MapWithIcu(character, Mapping::kTitle);
}

bool IsCasedPoint(char32_t point) { return u_hasBinaryProperty(point, UCHAR_CASED); }

}  // namespace

std::string Upper(std::string_view text) { return Map(text, Mapping::kUpper); }
std::string Lower(std::string_view text) { return Map(text, Mapping::kLower); }
std::string Casefold(std::string_view text) { return Map(text, Mapping::kFold); }

std::string Capitalize(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = Utf8Length(text[0]);
  return TitlePoint(text.substr(0, first)) + Lower(text.substr(first));
}

std::string Title(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    // One run of cased characters: the first in title case, the others in lower case.
    size_t end = at;
    while (end < text.size() && IsCasedPoint(Utf8At(text, end))) end += Utf8Length(text[end]);
    if (end == at) {
      end += Utf8Length(text[at]);
      result.append(text.substr(at, end - at));
    } else {
      result += Capitalize(text.substr(at, end - at));
    }
    at = end;
  }
  return result;
}

std::string Swapcase(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size(); at += Utf8Length(text[at])) {
    const std::string_view character = text.substr(at, Utf8Length(text[at]));
    const char32_t point = Utf8At(text, at);
    if (u_hasBinaryProperty(point, UCHAR_UPPERCASE)) {
      result += Lower(character);
    } else if (u_hasBinaryProperty(point, UCHAR_LOWERCASE)) {
      result += Upper(character);
    } else {
      result.append(character);
    }
  }
  return result;
}

}  // namespace megatrain::python

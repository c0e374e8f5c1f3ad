#include "engine/chat/jinja/python/unicode_text.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::python {
namespace {

bool HasNumericType(char32_t point, bool digits_only) {
  const int type = u_getIntPropertyValue(point, UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT || (!digits_only && type != U_NT_NONE);
}

bool IsPointOf(char32_t point, TextClass text_class) {
  switch (text_class) {
    case TextClass::kAlpha:
      return u_isalpha(point);
    case TextClass::kAlnum:
      return u_isalpha(point) || HasNumericType(point, false);
    case TextClass::kAscii:
      return point < 0x80;
    case TextClass::kDecimal:
      return u_charType(point) == U_DECIMAL_DIGIT_NUMBER;
    case TextClass::kDigit:
      return HasNumericType(point, true);
    case TextClass::kNumeric:
      return HasNumericType(point, false);
    case TextClass::kPrintable:
      return IsPrintable(point);
    default:
      return IsSpace(point);
  }
}

// islower, isupper and istitle: a cased character must be there, and all must be of the right case.
bool IsCased(std::string_view text, TextClass text_class) {
  bool any = false, after_cased = false;
  for (size_t at = 0; at < text.size(); at += Utf8Length(text[at])) {
    const char32_t point = Utf8At(text, at);
    const bool title = u_istitle(point);
    const bool upper = u_hasBinaryProperty(point, UCHAR_UPPERCASE);
    const bool lower = u_hasBinaryProperty(point, UCHAR_LOWERCASE);
    if (text_class == TextClass::kLower && (upper || title)) return false;
    if (text_class == TextClass::kUpper && (lower || title)) return false;
    if (text_class == TextClass::kTitle) {
      if ((upper || title) && after_cased) return false;
      if (lower && !after_cased) return false;
    }
    after_cased = upper || lower || title;
    any |= after_cased;
  }
  return any;
}

bool IsIdentifier(std::string_view text) {
  if (text.empty()) return false;
  for (size_t at = 0; at < text.size(); at += Utf8Length(text[at])) {
    const char32_t point = Utf8At(text, at);
    if (point == '_' || u_hasBinaryProperty(point, UCHAR_XID_START)) continue;
    if (at == 0 || !u_hasBinaryProperty(point, UCHAR_XID_CONTINUE)) return false;
  }
  return true;
}

// The end of the line that begins at `begin`; `*next` is where the next one begins.
size_t LineEnd(std::string_view text, size_t begin, size_t* next) {
  for (size_t at = begin; at < text.size();) {
    const char32_t point = Utf8At(text, at);
    const size_t after = at + Utf8Length(text[at]);
    if ((point >= 0x0a && point <= 0x0d) || (point >= 0x1c && point <= 0x1e) || point == 0x85 ||
        point == 0x2028 || point == 0x2029) {
      *next = point == '\r' && after < text.size() && text[after] == '\n' ? after + 1 : after;
      return at;
    }
    at = after;
  }
  *next = text.size();
  return text.size();
}

std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t splits_max,
                                           bool from_right) {
  std::vector<std::string_view> pieces;
  text = Strip(text, nullptr, !from_right, from_right);
  while (!text.empty()) {
    if (splits_max >= 0 && static_cast<int64_t>(pieces.size()) == splits_max) {
      pieces.push_back(text);  // with the white space at its far end
      break;
    }
    size_t cut = from_right ? text.size() : 0;  // the inner end of the word
    if (from_right) {
      while (cut > 0 && !IsSpace(Utf8At(text, Utf8Before(text, cut)))) cut = Utf8Before(text, cut);
      pieces.push_back(text.substr(cut));
      text = Strip(text.substr(0, cut), nullptr, false, true);
    } else {
      while (cut < text.size() && !IsSpace(Utf8At(text, cut))) cut += Utf8Length(text[cut]);
      pieces.push_back(text.substr(0, cut));
      text = Strip(text.substr(cut), nullptr, true, false);
    }
  }
  return pieces;
}

}  // namespace

size_t CountPoints(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  return count;
}

size_t OffsetOfPoint(std::string_view text, size_t point) {
  size_t at = 0;
  for (; point > 0 && at < text.size(); --point) at += Utf8Length(text[at]);
  return at;
}

std::string_view SubPoints(std::string_view text, size_t start, size_t stop) {
  const size_t begin = OffsetOfPoint(text, start);
  return text.substr(begin, OffsetOfPoint(text.substr(begin), stop - start));
}

bool IsSpace(char32_t point) {
  if (point < 0x80)
    return point == ' ' || (point >= 9 && point <= 13) || (point >= 28 && point <= 31);
  return IsWhiteSpace(point);
}

bool IsPrintable(char32_t point) {
  if (point < 0x80) return point >= ' ' && point < 0x7f;
  const int8_t type = u_charType(point);
  return type != U_CONTROL_CHAR && type != U_FORMAT_CHAR && type != U_SURROGATE &&
         type != U_PRIVATE_USE_CHAR && type != U_UNASSIGNED && type != U_LINE_SEPARATOR &&
         type != U_PARAGRAPH_SEPARATOR && type != U_SPACE_SEPARATOR;
}

bool IsOfClass(std::string_view text, TextClass text_class) {
  switch (text_class) {
    case TextClass::kLower:
    case TextClass::kUpper:
    case TextClass::kTitle:
      return IsCased(text, text_class);
    case TextClass::kIdentifier:
      return IsIdentifier(text);
    default:
      break;
  }
  for (size_t at = 0; at < text.size(); at += Utf8Length(text[at])) {
    if (!IsPointOf(Utf8At(text, at), text_class)) return false;
  }
  return !text.empty() || text_class == TextClass::kAscii || text_class == TextClass::kPrintable;
}

std::string_view Strip(std::string_view text, const std::string_view* chars, bool left,
                       bool right) {
  const auto drops = [chars](std::string_view character) {
    if (chars == nullptr) return IsSpace(Utf8At(character, 0));
    return chars->find(character) != std::string_view::npos;
  };
  while (left && !text.empty() && drops(text.substr(0, Utf8Length(text[0])))) {
    text.remove_prefix(Utf8Length(text[0]));
  }
  while (right && !text.empty()) {
    const size_t last = Utf8Before(text, text.size());
    if (!drops(text.substr(last))) break;
    text = text.substr(0, last);
  }
  return text;
}

std::vector<std::string_view> Split(std::string_view text, const std::string_view* separator,
                                    int64_t splits_max, bool from_right) {
  std::vector<std::string_view> pieces;
  if (separator == nullptr) {
    pieces = SplitAtSpace(text, splits_max, from_right);
  } else {
    while (splits_max < 0 || static_cast<int64_t>(pieces.size()) < splits_max) {
      const size_t at = from_right ? FindLast(text, *separator) : FindFirst(text, *separator);
      if (at == std::string_view::npos) break;
      const size_t after = at + separator->size();
      pieces.push_back(from_right ? text.substr(after) : text.substr(0, at));
      text = from_right ? text.substr(0, at) : text.substr(after);
    }
    pieces.push_back(text);
  }
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0, next = 0; begin < text.size(); begin = next) {
    const size_t end = LineEnd(text, begin, &next);
    lines.push_back(text.substr(begin, (keep_ends ? next : end) - begin));
  }
  return lines;
}

size_t FindFirst(std::string_view text, std::string_view part) {
  const void* const found = memmem(text.data(), text.size(), part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLast(std::string_view text, std::string_view part) {
  // Knuth, Morris and Pratt's search, from right to left: `failure` is that of the reversed part.
  const auto at = [part](size_t i) { return part[part.size() - 1 - i]; };
  std::vector<size_t> failure(part.size(), 0);
  size_t matched = 0;
  for (size_t i = 1; i < part.size(); ++i) {
    while (matched > 0 && at(i) != at(matched)) matched = failure[matched - 1];
    if (at(i) == at(matched)) ++matched;
    failure[i] = matched;
  }
  if (part.empty()) return text.size();
  matched = 0;
  for (size_t i = text.size(); i-- > 0;) {
    while (matched > 0 && text[i] != at(matched)) matched = failure[matched - 1];
    if (text[i] == at(matched)) ++matched;
    if (matched == part.size()) return i;
  }
  return std::string_view::npos;
}

bool Replace(std::string_view text, std::string_view from, std::string_view to, int64_t count_max,
             size_t bytes_max, std::string* result) {
  result->clear();
  size_t at = 0;
  for (int64_t count = 0; count_max < 0 || count < count_max; ++count) {
    // An empty `from` matches before every character and at the end.
    size_t found = FindFirst(text.substr(at), from);
    if (found == std::string_view::npos) break;
    found += at;
    result->append(text.substr(at, found - at)).append(to);
    at = found + from.size();
    if (result->size() > bytes_max) return false;
    if (!from.empty()) continue;
    if (at == text.size()) return true;
    const size_t length = Utf8Length(text[at]);
    result->append(text.substr(at, length));
    at += length;
  }
  if (result->size() + text.size() - at > bytes_max) return false;
  result->append(text.substr(at));
  return true;
}

std::string Quote(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (size_t at = 0; at < text.size(); at += Utf8Length(text[at])) {
    const char32_t point = Utf8At(text, at);
    if (point == '\n') {
      result += "\\n";
    } else if (point == '\r') {
      result += "\\r";
    } else if (point == '\t') {
      result += "\\t";
    } else if (point == '\\' || point == static_cast<unsigned char>(quote)) {
      result += {'\\', static_cast<char>(point)};
    } else if (IsPrintable(point)) {
      result.append(text.substr(at, Utf8Length(text[at])));
    } else if (point < 0x100) {
      absl::StrAppendFormat(&result, "\\x%02x", static_cast<uint32_t>(point));
    } else if (point < 0x10000) {
      absl::StrAppendFormat(&result, "\\u%04x", static_cast<uint32_t>(point));
    } else {
      absl::StrAppendFormat(&result, "\\U%08x", static_cast<uint32_t>(point));
    }
  }
  return result += quote;
}

std::string EscapeHtml(std::string_view text) {
  std::string result;
  for (const char byte : text) {
    switch (byte) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&#34;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += byte;
    }
  }
  return result;
}

}  // namespace megatrain::python

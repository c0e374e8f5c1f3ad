#include "engine/chat/jinja/python/number_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/chat/jinja/python/unicode_text.h"

namespace megatrain::python {
namespace {

bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }

// The value of a digit in bases up to 36, or 36 if it is none.
int DigitValue(char byte) {
  if (IsDigit(byte)) return byte - '0';
  const char lower = byte | 0x20;
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 36;
}

bool TakePrefix(std::string_view* text, char letter) {
  if (text->size() < 2 || (*text)[0] != '0' || ((*text)[1] | 0x20) != letter) return false;
  text->remove_prefix(2);
  if (!text->empty() && (*text)[0] == '_') text->remove_prefix(1);
  return true;
}

// Appends a run of digits with single underscores between them. Returns false if there is none.
bool TakeDigits(std::string_view* text, std::string* digits) {
  bool digit = false;
  while (!text->empty()) {
    const char byte = (*text)[0];
    if (byte == '_' && digit && text->size() > 1 && IsDigit((*text)[1])) {
      text->remove_prefix(1);
    } else if (IsDigit(byte)) {
      *digits += byte;
      digit = true;
      text->remove_prefix(1);
    } else {
      break;
    }
  }
  return digit;
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, end.ptr - buffer);
  std::string result;
  if (text[0] == '-') {
    result = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(1, text[0]);
  if (e > 1) digits += text.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    absl::StrAppend(&result, digits.substr(0, 1), count > 1 ? "." : "", digits.substr(1), "e",
                    exponent < 0 ? "-" : "+", std::abs(exponent) < 10 ? "0" : "",
                    std::abs(exponent));
  } else if (exponent < 0) {
    absl::StrAppend(&result, "0.", std::string(-exponent - 1, '0'), digits);
  } else if (count <= exponent + 1) {
    absl::StrAppend(&result, digits, std::string(exponent + 1 - count, '0'), ".0");
  } else {
    absl::StrAppend(&result, digits.substr(0, exponent + 1), ".", digits.substr(exponent + 1));
  }
  return result;
}

absl::StatusOr<std::optional<int64_t>> ParseInt(std::string_view text, int base) {
  const std::optional<int64_t> none;
  text = Strip(text, nullptr, true, true);
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  if ((base == 0 || base == 16) && TakePrefix(&text, 'x')) {
    base = 16;
  } else if ((base == 0 || base == 8) && TakePrefix(&text, 'o')) {
    base = 8;
  } else if ((base == 0 || base == 2) && TakePrefix(&text, 'b')) {
    base = 2;
  } else if (base == 0) {
    base = 10;
    const bool zero = text.find_first_not_of("0_") == std::string_view::npos;
    if (text.size() > 1 && text[0] == '0' && !zero) return none;
  }
  if (text.empty()) return none;
  uint64_t value = 0;
  bool fits = true, after_digit = false;
  for (const char byte : text) {
    if (byte == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const int digit = DigitValue(byte);
    if (digit >= base) return none;
    after_digit = true;
    fits = fits && value <= (std::numeric_limits<uint64_t>::max() - digit) / base;
    if (fits) value = value * base + digit;
  }
  if (!after_digit) return none;
  const uint64_t limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + negative;
  if (!fits || value > limit) {
    return absl::OutOfRangeError(absl::StrCat(
        "the integer ", absl::string_view(text.data(), std::min<size_t>(text.size(), 40)),
        text.size() > 40 ? "..." : "", " does not fit in 64 bits"));
  }
  return std::optional<int64_t>(static_cast<int64_t>(negative ? 0 - value : value));
}

std::optional<double> ParseFloat(std::string_view text) {
  text = Strip(text, nullptr, true, true);
  std::string clean;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    clean += text[0];
    text.remove_prefix(1);
  }
  const std::string word = Lower(text);
  if (word == "inf" || word == "infinity" || word == "nan") {
    return std::strtod((clean + word).c_str(), nullptr);
  }
  bool digits = TakeDigits(&text, &clean);
  if (!text.empty() && text[0] == '.') {
    clean += '.';
    text.remove_prefix(1);
    digits |= TakeDigits(&text, &clean);
  }
  if (!digits) return std::nullopt;
  if (!text.empty() && (text[0] | 0x20) == 'e') {
    clean += 'e';
    text.remove_prefix(1);
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
      clean += text[0];
      text.remove_prefix(1);
    }
    if (!TakeDigits(&text, &clean)) return std::nullopt;
  }
  if (!text.empty()) return std::nullopt;
  return std::strtod(clean.c_str(), nullptr);
}

double RoundFloat(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double power = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / power) * power;
  }
  char buffer[700];  // 309 digits before the point, 323 behind it
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

}  // namespace megatrain::python

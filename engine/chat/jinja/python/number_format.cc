// The mini-language of format strings, of python/number_text.h.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/python/number_text.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::python {
namespace {

bool IsAlign(char byte) { return byte == '<' || byte == '>' || byte == '=' || byte == '^'; }

absl::Status TakeNumber(std::string_view* text, int64_t* number) {
  int64_t value = 0;
  while (!text->empty() && (*text)[0] >= '0' && (*text)[0] <= '9') {
    value = value * 10 + (*text)[0] - '0';
    if (value > FormatSpec::kWidthMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a width or precision of more than ", FormatSpec::kWidthMax));
    }
    text->remove_prefix(1);
  }
  *number = value;
  return absl::OkStatus();
}

absl::Status UnknownType(char type, const char* of) {
  return absl::InvalidArgumentError(absl::StrCat("Unknown format code '", std::string(1, type),
                                                 "' for object of type '", of, "'"));
}

std::string Repeat(const std::string& character, int64_t count) {
  std::string result;
  for (int64_t i = 0; i < count; ++i) result += character;
  return result;
}

// Returns the end of the integer that `digits` begins with.
size_t IntegerEnd(const std::string& digits) {
  size_t end = 0;
  while (end < digits.size() && digits[end] != '.' && digits[end] != '%') ++end;
  if (digits.find('+') != std::string::npos || digits.find('-') != std::string::npos) {
    end = std::min(end, digits.find_first_of("eE"));
  }
  return end;
}

// Puts `separator` between groups of `group` digits of the integer.
std::string Group(const std::string& digits, char separator, int group) {
  const size_t end = IntegerEnd(digits);
  std::string result;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % group == 0) result += separator;
    result += digits[i];
  }
  return result + digits.substr(end);
}

// Puts a sign or prefix `before` and `digits` into a field. A field that is filled up with zeros is
// grouped with them.
std::string PadNumber(std::string before, std::string digits, const FormatSpec& spec, int group) {
  const bool zeros = spec.align == '=' || (spec.align == 0 && spec.fill == "0");
  if (spec.grouping != 0) {
    if (zeros && spec.fill == "0") {
      const auto end = static_cast<int64_t>(IntegerEnd(digits));
      const int64_t rest = static_cast<int64_t>(before.size() + digits.size()) - end;
      int64_t filled = end;
      while (rest + filled + (filled - 1) / group < spec.width) ++filled;
      digits.insert(0, static_cast<size_t>(filled - end), '0');
    }
    digits = Group(digits, spec.grouping, group);
  }
  const int64_t room = spec.width - static_cast<int64_t>(before.size() + digits.size());
  if (room <= 0) return before + digits;
  if (zeros) return before + Repeat(spec.fill, room) + digits;
  const int64_t left = spec.align == '<' ? 0 : spec.align == '^' ? room / 2 : room;
  return Repeat(spec.fill, left) + before + digits + Repeat(spec.fill, room - left);
}

std::string SignOf(bool negative, char sign) {
  return negative ? "-" : sign == '-' ? "" : std::string(1, sign);
}

// Digits of a non-negative value in the style of printf's e, f or g.
std::string Digits(double value, char type, int64_t precision, bool alternate) {
  const std::string pattern = absl::StrCat("%", alternate ? "#" : "", ".*", std::string(1, type));
  const int size = std::snprintf(nullptr, 0, pattern.c_str(), static_cast<int>(precision), value);
  std::string result(size + 1, '\0');
  std::snprintf(result.data(), result.size(), pattern.c_str(), static_cast<int>(precision), value);
  result.pop_back();
  return result;
}

// Without a type but with a precision, a float is written as by "g", but never as an integer.
std::string UntypedDigits(double value, int64_t precision, bool alternate) {
  precision = std::max<int64_t>(precision, 1);
  if (!std::isfinite(value)) return Digits(value, 'g', precision, alternate);
  const std::string scientific = Digits(value, 'e', precision - 1, alternate);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent == precision - 1) {
    std::string result = scientific;  // "g" would write it without an exponent
    const size_t e = result.find('e');
    size_t end = e;
    if (result.find('.') < e) {
      while (result[end - 1] == '0') --end;
      if (result[end - 1] == '.') --end;
    }
    return result.erase(end, e - end);
  }
  const std::string result = Digits(value, 'g', precision, alternate);
  return result.find_first_of(".e") == std::string::npos ? result + ".0" : result;
}

}  // namespace

absl::StatusOr<FormatSpec> ParseFormatSpec(std::string_view text) {
  FormatSpec spec;
  const std::string_view whole = text;
  bool filled = false;
  const size_t first = text.empty() ? 0 : Utf8Length(text[0]);
  if (text.size() > first && IsAlign(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    filled = true;
    text.remove_prefix(first + 1);
  } else if (!text.empty() && IsAlign(text[0])) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  const auto take = [&text](std::string_view set) {
    if (text.empty() || set.find(text[0]) == std::string_view::npos) return '\0';
    const char byte = text[0];
    text.remove_prefix(1);
    return byte;
  };
  if (const char sign = take("+- "); sign != 0) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (!filled && take("0") != 0) spec.fill = "0";
  MT_RETURN_IF_ERROR(TakeNumber(&text, &spec.width));
  spec.grouping = take(",_");
  if (take(".") != 0) {
    if (text.empty() || text[0] < '0' || text[0] > '9') {
      return absl::InvalidArgumentError("Format specifier missing precision");
    }
    MT_RETURN_IF_ERROR(TakeNumber(&text, &spec.precision));
  }
  if (text.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("Invalid format specifier '", ToAbsl(whole.substr(0, 80)), "'"));
  }
  if (!text.empty()) spec.type = text[0];
  return spec;
}

absl::StatusOr<std::string> FormatText(std::string_view value, const FormatSpec& spec) {
  if (spec.type != 0 && spec.type != 's') return UnknownType(spec.type, "str");
  if (spec.sign != '-' || spec.alternate || spec.align == '=' || spec.grouping != 0) {
    return absl::InvalidArgumentError(
        "Sign, '#', '=' and grouping are not allowed in string format specifier");
  }
  if (spec.precision >= 0) value = SubPoints(value, 0, spec.precision);
  const int64_t room = spec.width - static_cast<int64_t>(CountPoints(value));
  if (room <= 0) return std::string(value);
  const int64_t left = spec.align == '>' ? room : spec.align == '^' ? room / 2 : 0;
  return Repeat(spec.fill, left) + std::string(value) + Repeat(spec.fill, room - left);
}

absl::StatusOr<std::string> FormatInt(int64_t value, const FormatSpec& spec) {
  const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos) {
    return FormatFloat(static_cast<double>(value), spec);
  }
  if (std::string_view("bcdoxX").find(type) == std::string_view::npos) {
    return UnknownType(type, "int");
  }
  if (spec.precision >= 0) {
    return absl::InvalidArgumentError("Precision not allowed in integer format specifier");
  }
  if (spec.grouping == ',' && type != 'd') {
    return absl::InvalidArgumentError(
        absl::StrCat("Cannot specify ',' with '", std::string(1, type), "'."));
  }
  if (type == 'c') {
    if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
      return absl::InvalidArgumentError("%c arg not in range(0x110000)");
    }
    FormatSpec text = spec;
    text.type = 0;
    if (text.align == 0) text.align = '>';
    std::string character;
    AppendUtf8(static_cast<char32_t>(value), &character);
    return FormatText(character, text);
  }
  const uint64_t base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'd' ? 10 : 16;
  // A pointer, because GCC 12 with -fsanitize=undefined miscompiles a subscript of `? :` itself.
  const char* const symbols = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  uint64_t rest = value < 0 ? 0 - static_cast<uint64_t>(value) : value;
  do {
    digits += symbols[rest % base];
    rest /= base;
  } while (rest != 0);
  std::reverse(digits.begin(), digits.end());
  std::string before = SignOf(value < 0, spec.sign);
  if (spec.alternate && type != 'd') before += {'0', type};
  return PadNumber(std::move(before), std::move(digits), spec, type == 'd' ? 3 : 4);
}

absl::StatusOr<std::string> FormatFloat(double value, const FormatSpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  double magnitude = std::isnan(value) ? std::fabs(value) : negative ? -value : value;
  char type = spec.type == 'n' ? 'g' : spec.type;
  std::string digits;
  if (type == 0 && spec.precision < 0) {
    digits = FloatRepr(magnitude);
  } else if (type == 0) {
    digits = UntypedDigits(magnitude, spec.precision, spec.alternate);
  } else if (std::string_view("eEfFgG%").find(type) == std::string_view::npos) {
    return UnknownType(type, "float");
  } else {
    const bool percent = type == '%';
    if (percent) magnitude *= 100;
    digits = Digits(magnitude, percent ? 'f' : type, spec.precision < 0 ? 6 : spec.precision,
                    spec.alternate);
    if (percent) digits += '%';
  }
  return PadNumber(SignOf(negative, spec.sign), std::move(digits), spec, 3);
}

}  // namespace megatrain::python

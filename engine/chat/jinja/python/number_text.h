// Reads, writes and formats numbers as Python does. REQUIRES: texts are well-formed UTF-8.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_PYTHON_NUMBER_TEXT_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_PYTHON_NUMBER_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain::python {

// Returns repr(value): the shortest decimal that reads back the same ("0.1", "1e+16"), "inf",
// "-inf" or "nan".
std::string FloatRepr(double value);

// Returns int(text, base), or nullopt if `text` is not an integer of that base. Reads ASCII digits
// only. Returns OutOfRange for an integer beyond int64. REQUIRES: `base` is 0 or from 2 to 36.
absl::StatusOr<std::optional<int64_t>> ParseInt(std::string_view text, int base);
// Returns float(text), or nullopt if `text` is not a float. Reads ASCII digits only.
std::optional<double> ParseFloat(std::string_view text);

// Returns round(value, digits): to the nearest, halves to even. The result is correctly rounded in
// decimal if `digits` is not negative. Otherwise value / 10**-digits is rounded and multiplied
// back.
double RoundFloat(double value, int64_t digits);

// One field of a format string: [[fill]align][sign][#][0][width][grouping][.precision][type], the
// mini-language of str.format. A 0 before the width becomes the fill if no fill is given. Callers
// translate the flags of printf into these members.
struct FormatSpec {
  static constexpr int64_t kWidthMax = 1 << 20;

  std::string fill = " ";  // one character
  char align = 0;          // one of "<>=^", or 0 for the type's own
  char sign = '-';         // one of "+- "
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;       // ',' or '_'
  int64_t precision = -1;  // -1 if absent
  char type = 0;           // 0 if absent
};

// Parses a field. Returns InvalidArgument for a text that is not of this form, and for a width or
// precision above kWidthMax.
absl::StatusOr<FormatSpec> ParseFormatSpec(std::string_view text);

// Return format(value, spec), or InvalidArgument for a type or flag that Python refuses for the
// value. FormatInt and FormatFloat take a grouping with type n, which Python refuses. REQUIRES:
// width and precision are at most kWidthMax.
absl::StatusOr<std::string> FormatText(std::string_view value, const FormatSpec& spec);
absl::StatusOr<std::string> FormatInt(int64_t value, const FormatSpec& spec);
absl::StatusOr<std::string> FormatFloat(double value, const FormatSpec& spec);

}  // namespace megatrain::python

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_PYTHON_NUMBER_TEXT_H_

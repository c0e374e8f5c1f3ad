#include "engine/base/bytes.h"

#include <array>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace megatrain {
namespace {

struct Unit {
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<Unit, 4> kUnits = {
    {{"TiB", kTiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}}};

// A decimal fraction longer than this is below a byte even in TiB (2^40 < 10^13).
constexpr int kFractionDigitsMax = 13;

absl::Status Malformed(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(text), "' is not a size: ", std::string(why),
                   "; write bytes (1048576) or a number with KiB, MiB, GiB or TiB (1.5 GiB)"));
}

}  // namespace

std::string FormatCount(int64_t value) {
  const std::string digits = absl::StrCat(value);
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = i > 0 && digits[i - 1] != '-';
    if (after_digit && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string FormatBytesShort(int64_t bytes) {
  const double magnitude = bytes < 0 ? -static_cast<double>(bytes) : static_cast<double>(bytes);
  for (const Unit& unit : kUnits) {
    if (magnitude >= static_cast<double>(unit.bytes)) {
      return absl::StrFormat("%.2f %s", static_cast<double>(bytes) / unit.bytes, unit.name);
    }
  }
  return absl::StrCat(bytes, bytes == 1 ? " byte" : " bytes");
}

std::string FormatBytes(int64_t bytes) {
  const std::string rounded = FormatBytesShort(bytes);
  if (bytes > -kKiB && bytes < kKiB) return rounded;
  return absl::StrCat(rounded, " (", FormatCount(bytes), " bytes)");
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const absl::string_view stripped =
      absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size()));
  size_t at = 0;
  int64_t whole = 0;
  while (at < stripped.size() && absl::ascii_isdigit(stripped[at])) {
    const int digit = stripped[at++] - '0';
    if (whole > (kMax - digit) / 10) return Malformed(text, "it is larger than 2^63 - 1 bytes");
    whole = whole * 10 + digit;
  }
  if (at == 0) return Malformed(text, "it does not begin with a digit");

  // The fraction is fraction / fraction_scale, digits past kFractionDigitsMax dropped.
  int64_t fraction = 0, fraction_scale = 1;
  bool has_fraction = false;
  if (at < stripped.size() && stripped[at] == '.') {
    const size_t first = ++at;
    for (; at < stripped.size() && absl::ascii_isdigit(stripped[at]); ++at) {
      if (at - first >= kFractionDigitsMax) continue;
      fraction = fraction * 10 + (stripped[at] - '0');
      fraction_scale *= 10;
    }
    if (at == first) return Malformed(text, "there is no digit after the point");
    has_fraction = true;
  }

  const absl::string_view suffix = absl::StripLeadingAsciiWhitespace(stripped.substr(at));
  if (suffix.empty()) {
    if (has_fraction) return Malformed(text, "a fraction needs a unit");
    return whole;
  }
  for (const Unit& unit : kUnits) {
    if (suffix != absl::string_view(unit.name.data(), unit.name.size())) continue;
    // 10^13 * 2^40 needs 84 bits.
    const __int128 bytes = static_cast<__int128>(whole) * unit.bytes +
                           static_cast<__int128>(fraction) * unit.bytes / fraction_scale;
    if (bytes > kMax) return Malformed(text, "it is larger than 2^63 - 1 bytes");
    return static_cast<int64_t>(bytes);
  }
  return Malformed(text, absl::StrCat("unknown unit '", suffix, "'"));
}

}  // namespace megatrain

#include "client/output/text.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace megatrain::client {
namespace {

struct CodePoint {
  char32_t value = 0;
  size_t bytes = 1;
  bool valid = false;
};

// The first code point of a text that is not empty.
CodePoint Decode(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xF0 && lead < 0xF5   ? 4
                       : lead >= 0xE0 && lead < 0xF0 ? 3
                       : lead >= 0xC2 && lead < 0xE0 ? 2
                                                     : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  char32_t value = lead & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (overlong || surrogate || value > 0x10FFFF) return {};
  return {value, bytes, true};
}

struct Range {
  char32_t first, last;
};

template <size_t n>
bool In(const Range (&ranges)[n], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

int WidthOf(char32_t c) {
  static constexpr Range kNone[] = {
      {0x300, 0x36F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}};
  static constexpr Range kWide[] = {{0x1100, 0x115F}, {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},
                                    {0xF900, 0xFAFF}, {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                                    {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
  if (c < 0x300) return 1;
  return In(kNone, c) ? 0 : In(kWide, c) ? 2 : 1;
}

// Bidirectional overrides reorder what stands beside them, so they count as control characters.
bool IsControl(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0x2028 || c == 0x2029;
}

// The longest beginning of at most `width` columns, in bytes.
size_t PrefixBytes(absl::string_view text, int width) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint c = Decode(text.substr(at));
    width -= WidthOf(c.value);
    if (width < 0) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

std::string SizeText(int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", value < 9.95 ? 1 : 0, value, units[unit]);
}

std::string FormatRate(double per_second) {
  if (!std::isfinite(per_second) || per_second < 0) return "--";
  if (per_second < 999.5) return absl::StrFormat("%.0f", per_second);
  const char* const units[] = {"k", "M", "G", "T", "P"};
  double value = per_second / 1000;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f%s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
}

std::string DurationText(absl::Duration duration) {
  if (duration < absl::ZeroDuration() || duration > absl::Hours(24 * 10000)) return "--";
  const int64_t total = absl::ToInt64Seconds(duration + absl::Milliseconds(500));
  if (total < 60) return absl::StrFormat("%ds", total);
  if (total < 3600) return absl::StrFormat("%dm%02ds", total / 60, total % 60);
  if (total < 86400) return absl::StrFormat("%dh%02dm", total / 3600, total / 60 % 60);
  return absl::StrFormat("%dd%02dh", total / 86400, total / 3600 % 24);
}

std::string FormatLoss(double loss) { return absl::StrFormat("%.4f", loss); }

std::string FormatLocalTime(absl::Time time, absl::TimeZone zone) {
  if (time == absl::InfinitePast() || time == absl::InfiniteFuture()) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", time, zone);
}

std::string Printable(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = Decode(text.substr(at));
    if (c.valid && c.value == '\t') {
      result += ' ';
    } else if (!c.valid || IsControl(c.value)) {
      result += '?';
    } else {
      result.append(text.data() + at, c.bytes);
    }
    at += c.bytes;
  }
  return result;
}

std::string PrintableLines(absl::string_view text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) lines.push_back(Printable(line));
  return absl::StrJoin(lines, "\n");
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = Decode(text.substr(at));
    width += WidthOf(c.value);
    at += c.bytes;
  }
  return width;
}

std::string Ellipsize(absl::string_view text, int width, Charset charset) {
  if (width <= 0) return "";
  if (DisplayWidth(text) <= width) return std::string(text);
  const absl::string_view mark = charset == Charset::kUtf8 ? "…" : "~";
  return absl::StrCat(text.substr(0, PrefixBytes(text, width - 1)), mark);
}

std::string PadRight(absl::string_view text, int width) {
  return absl::StrCat(text, std::string(std::max(0, width - DisplayWidth(text)), ' '));
}

std::string PadLeft(absl::string_view text, int width) {
  return absl::StrCat(std::string(std::max(0, width - DisplayWidth(text)), ' '), text);
}

std::vector<std::string> FlowWords(const std::vector<std::string>& words, int width, int indent,
                                   absl::string_view separator, Charset charset) {
  std::vector<std::string> lines;
  std::string line;
  bool empty = true;
  for (const std::string& word : words) {
    std::string longer = empty ? absl::StrCat(line, word) : absl::StrCat(line, separator, word);
    if (!empty && DisplayWidth(longer) > width) {
      lines.push_back(std::move(line));
      longer = absl::StrCat(std::string(std::min(indent, width / 2), ' '), word);
    }
    line = Ellipsize(longer, width, charset);
    empty = false;
  }
  if (!empty) lines.push_back(std::move(line));
  return lines;
}

}  // namespace megatrain::client

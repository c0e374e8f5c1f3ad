// Formats numbers and texts for people. A server's texts may hold control characters from other
// programs, which a terminal would obey. Printable makes such texts safe to show. A text is called
// printable if Printable would not change it. Widths are columns as DisplayWidth counts them.
#ifndef MEGATRAIN_CLIENT_OUTPUT_TEXT_H_
#define MEGATRAIN_CLIENT_OUTPUT_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace megatrain::client {

// The characters that a terminal can show.
enum class Charset { kAscii, kUtf8 };

// Returns a size such as "1.5 GiB", "300 MiB" or "512 B". From 1 KiB to 999 PiB there are two or
// three digits.
std::string SizeText(int64_t bytes);
// Returns a rate such as "950", "12.3k" or "1.23M", to which the caller adds the unit. Up to 999P
// there are at most three digits. Returns "--" if `per_second` is negative or not finite.
std::string FormatRate(double per_second);
// Returns a time such as "42s", "3m05s", "2h07m" or "4d03h". Returns "--" if `duration` is negative
// or above 10,000 days.
std::string DurationText(absl::Duration duration);
// Returns a loss with four decimals, such as "2.1043", or "nan" or "inf", perhaps behind a minus
// sign.
std::string FormatLoss(double loss);
// Returns a time such as "2026-11-21 12:00:03", in `zone`; empty for InfinitePast and
// InfiniteFuture.
std::string FormatLocalTime(absl::Time time, absl::TimeZone zone);

// Replaces control characters, line separators, bidirectional overrides and invalid UTF-8 by '?',
// and a tab by a space.
std::string Printable(absl::string_view text);
// Makes each line of `text` printable, and leaves '\n'.
std::string PrintableLines(absl::string_view text);

// Returns about the columns that printable text takes on a terminal. East Asian characters and
// emoji from U+1F300 take two, and the commonest combining marks none.
int DisplayWidth(absl::string_view text);
// Cuts printable text to at most `width` columns. Text that was longer ends with an ellipsis, which
// is "~" in ASCII. Returns "" if `width` is 0 or less.
std::string Ellipsize(absl::string_view text, int width, Charset charset);
// Add spaces to printable text up to `width` columns: PadRight behind it, PadLeft before it. Longer
// text is returned unchanged.
std::string PadRight(absl::string_view text, int width);
std::string PadLeft(absl::string_view text, int width);

// Joins printable words with `separator` into lines of at most `width` columns. The separator is
// left out at a line's end. All lines but the first begin with `indent` spaces, or half the width
// if that is less. A word longer than a line is cut. REQUIRES: width >= 0, indent >= 0.
std::vector<std::string> FlowWords(const std::vector<std::string>& words, int width, int indent,
                                   absl::string_view separator, Charset charset);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_TEXT_H_

// Formats numbers and texts for people. Printable makes a server's texts safe: they may hold
// control characters that other programs wrote, and that a terminal obeys.
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

// "1.5 GiB", "300 MiB", "512 B": two or three digits, narrower than the FormatBytes of the engine.
std::string SizeText(int64_t bytes);
// "950", "12.3k", "1.23M": three digits.
std::string FormatRate(double per_second);
// "42s", "3m05s", "2h07m", "4d03h"; "--" if negative or not finite.
std::string DurationText(absl::Duration duration);
// "2.1043"; "nan", "inf".
std::string FormatLoss(double loss);
// "2026-11-21 12:00:03" in `zone`; empty for a time that is not set.
std::string FormatLocalTime(absl::Time time, absl::TimeZone zone);

// Replaces control characters and broken UTF-8 by '?', and a tab by a space.
std::string Printable(absl::string_view text);

// Returns the columns that printable text takes on a terminal: wide characters two, combining ones
// none.
int DisplayWidth(absl::string_view text);
// Cuts printable text to at most `width` columns, with an ellipsis at the end if it was longer.
std::string Ellipsize(absl::string_view text, int width, Charset charset);
// Add spaces behind or before printable text up to `width` columns; longer text stays.
std::string PadRight(absl::string_view text, int width);
std::string PadLeft(absl::string_view text, int width);

// Joins words by `separator` into lines of at most `width` columns, `indent` spaces before all but
// the first line. A word that is longer than a line is cut.
std::vector<std::string> FlowWords(const std::vector<std::string>& words, int width, int indent,
                                   absl::string_view separator, Charset charset);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_TEXT_H_

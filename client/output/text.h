// Numbers and texts for people. Texts of a server are made safe to print here: they may hold what
// other programs wrote, and a terminal obeys control characters.
#ifndef MEGATRAIN_CLIENT_OUTPUT_TEXT_H_
#define MEGATRAIN_CLIENT_OUTPUT_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace megatrain::client {

// What a terminal may be sent beyond ASCII.
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

// Control characters and broken UTF-8 become '?', a tab a space.
std::string Printable(absl::string_view text);

// Columns that printable text takes on a terminal: wide characters two, combining ones none.
int DisplayWidth(absl::string_view text);
// At most `width` columns; what is cut off is marked with an ellipsis.
std::string Ellipsize(absl::string_view text, int width, Charset charset);
// With spaces to exactly `width` columns, or longer if the text is.
std::string PadRight(absl::string_view text, int width);
std::string PadLeft(absl::string_view text, int width);

// Words joined by `separator` into lines of at most `width` columns, `indent` spaces before all but
// the first line. A word that is longer than a line is cut.
std::vector<std::string> FlowWords(const std::vector<std::string>& words, int width, int indent,
                                   absl::string_view separator, Charset charset);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_TEXT_H_

#include "client/watch/screen.h"

namespace megatrain::client {
namespace {

constexpr char kAlternateOn[] = "\033[?1049h";
constexpr char kAlternateOff[] = "\033[?1049l";
constexpr char kCursorOff[] = "\033[?25l";
constexpr char kCursorOn[] = "\033[?25h";
constexpr char kWrapOff[] = "\033[?7l";
constexpr char kWrapOn[] = "\033[?7h";
constexpr char kHome[] = "\033[H";
constexpr char kEraseToLineEnd[] = "\033[K";
constexpr char kEraseBelow[] = "\033[J";

}  // namespace

void Screen::Enter() {
  if (entered_) return;
  entered_ = true;
  std::fprintf(out_, "%s%s%s", kAlternateOn, kCursorOff, kWrapOff);
  std::fflush(out_);
}

void Screen::Leave() {
  if (!entered_) return;
  entered_ = false;
  std::fprintf(out_, "%s%s%s", kWrapOn, kCursorOn, kAlternateOff);
  std::fflush(out_);
}

void Screen::Draw(const std::vector<std::string>& lines) {
  if (!entered_) return;
  // Overwritten rather than cleared at once, so that nothing flickers. Each line is erased before
  // it is written: after one of full width an erasure would take its last character.
  std::string text = kHome;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += "\r\n";
    text += i + 1 < lines.size() ? kEraseToLineEnd : kEraseBelow;
    text += lines[i];
  }
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

}  // namespace megatrain::client

// Screen is a page on the terminal that is redrawn in place. It uses the alternate screen, so that
// the terminal shows its former content afterwards.
#ifndef MEGATRAIN_CLIENT_WATCH_SCREEN_H_
#define MEGATRAIN_CLIENT_WATCH_SCREEN_H_

#include <cstdio>
#include <string>
#include <vector>

namespace megatrain::client {

class Screen {
 public:
  // `out` must be a terminal and must outlive this.
  explicit Screen(FILE* out) : out_(out) { Enter(); }
  ~Screen() { Leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Switch to the alternate screen and back, for example around a suspension. May be called any
  // number of times. A call that would change nothing does nothing.
  void Enter();
  void Leave();
  // Shows `lines` in place of the lines before. Does nothing after Leave. REQUIRES: there is a
  // line; the lines are printable (text.h) and fit the terminal.
  void Draw(const std::vector<std::string>& lines);

 private:
  FILE* const out_;
  bool entered_ = false;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_SCREEN_H_

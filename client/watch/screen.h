// A page on the terminal that is redrawn in place. It uses the alternate screen, so that the
// terminal shows its former content afterwards.
#ifndef MEGATRAIN_CLIENT_WATCH_SCREEN_H_
#define MEGATRAIN_CLIENT_WATCH_SCREEN_H_

#include <cstdio>
#include <string>
#include <vector>

namespace megatrain::client {

class Screen {
 public:
  // `out` is a terminal and must outlive this.
  explicit Screen(FILE* out) : out_(out) { Enter(); }
  ~Screen() { Leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Switch to the alternate screen and back. May be called again, as around a suspension; without
  // effect if it is so already.
  void Enter();
  void Leave();
  // Shows the lines in place of those before. REQUIRES: they fit the terminal.
  void Draw(const std::vector<std::string>& lines);

 private:
  FILE* const out_;
  bool entered_ = false;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_SCREEN_H_

// The terminal as a page that is redrawn in place: the alternate screen, so that what was on the
// terminal is there again afterwards.
#ifndef MEGATRAIN_CLIENT_WATCH_SCREEN_H_
#define MEGATRAIN_CLIENT_WATCH_SCREEN_H_

#include <cstdio>
#include <string>
#include <vector>

namespace megatrain::client {

class Screen {
 public:
  // `out` is a terminal.
  explicit Screen(FILE* out) : out_(out) { Enter(); }
  ~Screen() { Leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Each may be called again, as around a suspension.
  void Enter();
  void Leave();
  // Lines fit the terminal.
  void Draw(const std::vector<std::string>& lines);

 private:
  FILE* const out_;
  bool entered_ = false;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_SCREEN_H_

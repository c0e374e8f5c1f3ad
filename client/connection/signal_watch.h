// Receives signals as events to wait for, in place of handlers, so that a view can end, redraw or
// suspend in order.
#ifndef MEGATRAIN_CLIENT_CONNECTION_SIGNAL_WATCH_H_
#define MEGATRAIN_CLIENT_CONNECTION_SIGNAL_WATCH_H_

#include <signal.h>

#include <initializer_list>
#include <optional>

namespace megatrain::client {

// While it lives, its signals are blocked in the thread that made it and in threads started since.
// A thread that was started before still gets them: make the watch before any thread of the
// process. It must be destroyed in the thread that made it, and then drops signals that have come
// and were not taken.
//
// Thread safety: Take from one thread at a time.
class SignalWatch {
 public:
  explicit SignalWatch(std::initializer_list<int> signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // A descriptor that is readable when there is a signal. Closed with the watch.
  int fd() const { return fd_; }
  // Returns the next signal that has come; nullopt if there is none. Does not wait.
  std::optional<int> Take();

 private:
  sigset_t before_;
  int fd_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_SIGNAL_WATCH_H_

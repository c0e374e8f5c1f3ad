// Signals as something to wait for, so that a view ends, redraws or suspends in an orderly way.
#ifndef MEGATRAIN_CLIENT_CONNECTION_SIGNAL_WATCH_H_
#define MEGATRAIN_CLIENT_CONNECTION_SIGNAL_WATCH_H_

#include <signal.h>

#include <initializer_list>
#include <optional>

namespace megatrain::client {

// Takes the signals from this thread, and from threads that are started while it lives, until it is
// destroyed: make it before any thread of the process.
class SignalWatch {
 public:
  explicit SignalWatch(std::initializer_list<int> signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Readable when there is one.
  int fd() const { return fd_; }
  // The next one that has come.
  std::optional<int> Take();

 private:
  sigset_t before_;
  int fd_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_SIGNAL_WATCH_H_

// SignalWatch delivers signals through a descriptor that can be waited for, in place of handlers,
// so that a view can end, redraw or suspend between two of its actions.
#ifndef MEGATRAIN_CLIENT_CONNECTION_SIGNAL_WATCH_H_
#define MEGATRAIN_CLIENT_CONNECTION_SIGNAL_WATCH_H_

#include <signal.h>

#include <initializer_list>
#include <optional>

namespace megatrain::client {

// While a watch lives, its signals are blocked in the thread that made it and in threads started
// later by that thread. Other threads still receive them, so make the watch before any other thread
// of the process starts. Destroy it in the thread that made it. The destructor drops signals that
// were not taken. A signal that the process ignores, as under nohup, stays ignored and is not
// watched.
//
// Thread safety: Take from one thread at a time.
class SignalWatch {
 public:
  // Blocks `signals` in the calling thread. The destructor restores the thread's former signal
  // mask.
  explicit SignalWatch(std::initializer_list<int> signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Returns a descriptor that is readable while a signal waits to be taken, or -1 if the process
  // had no descriptor left: then signals do what they did before, and Take returns nothing. The
  // watch closes it.
  int fd() const { return fd_; }
  // Returns the next signal, or nullopt if none waits. Does not wait.
  std::optional<int> Take();

 private:
  sigset_t before_;
  int fd_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_SIGNAL_WATCH_H_

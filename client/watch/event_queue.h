// Events of streams on their way to the thread that shows them.
#ifndef MEGATRAIN_CLIENT_WATCH_EVENT_QUEUE_H_
#define MEGATRAIN_CLIENT_WATCH_EVENT_QUEUE_H_

#include <cstddef>
#include <deque>

#include "client/watch/watch_event.h"
#include "engine/base/mutex.h"

namespace megatrain::client {

// Thread safety: all methods may be called from any thread.
// Invariants: holds at most kEventsMax; who brings more waits, so that a long history is read no
// faster than it is shown.
class EventQueue {
 public:
  static constexpr size_t kEventsMax = 256;

  EventQueue();
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Dropped once Close was called.
  void Push(WatchEvent event);
  // All there are, the oldest first. Does not wait.
  std::deque<WatchEvent> TakeAll();
  // Nobody takes any more: lets those go that wait in Push.
  void Close();

  // Readable while there are events.
  int fd() const { return fd_; }

 private:
  const int fd_;
  Mutex mutex_;
  CondVar taken_;
  std::deque<WatchEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_EVENT_QUEUE_H_

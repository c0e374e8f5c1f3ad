// EventQueue is a bounded queue of events, from the threads that read streams to the thread that
// shows them.
#ifndef MEGATRAIN_CLIENT_WATCH_EVENT_QUEUE_H_
#define MEGATRAIN_CLIENT_WATCH_EVENT_QUEUE_H_

#include <cstddef>
#include <deque>

#include "client/watch/watch_event.h"
#include "engine/base/mutex.h"

namespace megatrain::client {

// Thread safety: all methods may be called from any thread.
//
// Invariant: the queue holds at most kEventsMax events, so that a long history is read no faster
// than it is shown.
class EventQueue {
 public:
  static constexpr size_t kEventsMax = 256;

  EventQueue();
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Adds an event. Waits while the queue is full. Drops the event once Close was called.
  void Push(WatchEvent event);
  // Removes and returns all events, the oldest first. Does not wait.
  std::deque<WatchEvent> TakeAll();
  // Makes Push return at once, in threads that wait now and in later calls. Call it when no thread
  // will take events any more.
  void Close();

  // Returns a descriptor that is readable while there are events, or -1 if the process has no
  // descriptor left. The queue closes it.
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

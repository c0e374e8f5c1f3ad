#include "client/watch/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace megatrain::client {

EventQueue::EventQueue() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

EventQueue::~EventQueue() {
  if (fd_ >= 0) close(fd_);
}

void EventQueue::Push(WatchEvent event) {
  MutexLock lock(&mutex_);
  while (!closed_ && events_.size() >= kEventsMax) taken_.Wait(&mutex_);
  if (closed_) return;
  events_.push_back(std::move(event));
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

std::deque<WatchEvent> EventQueue::TakeAll() {
  MutexLock lock(&mutex_);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t was_read = read(fd_, &count, sizeof(count));
  taken_.NotifyAll();
  return std::exchange(events_, {});
}

void EventQueue::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  taken_.NotifyAll();
}

}  // namespace megatrain::client

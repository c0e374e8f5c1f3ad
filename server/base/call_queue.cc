#include "server/base/call_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/thread_name.h"
#include "server/base/error_reason.h"

namespace megatrain {

CallQueue::CallQueue(std::string name, int threads, size_t waiting_max, size_t waiting_bytes_max)
    : name_(std::move(name)), waiting_max_(waiting_max), waiting_bytes_max_(waiting_bytes_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

CallQueue::~CallQueue() { Stop(); }

absl::Status CallQueue::Add(size_t bytes, std::function<void(const absl::Status& status)> call) {
  MutexLock lock(&mutex_);
  if (stopping_) return DaemonStopping();
  const bool too_many = waiting_.size() >= waiting_max_;
  const bool too_large = !waiting_.empty() && waiting_bytes_ + bytes > waiting_bytes_max_;
  if (too_many || too_large) {
    return WithReason(
        absl::UnavailableError(absl::StrCat(waiting_.size(), " calls wait; try again later")),
        v1::OVERLOADED);
  }
  waiting_.push_back({bytes, std::move(call)});
  waiting_bytes_ += bytes;
  added_.NotifyOne();
  return absl::OkStatus();
}

void CallQueue::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    added_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void CallQueue::Run() {
  NameThisThread(name_.c_str());
  for (;;) {
    Call call;
    bool stopping = false;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopping_) added_.Wait(&mutex_);
      if (waiting_.empty()) return;
      call = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= call.bytes;
      stopping = stopping_;
    }
    call.run(stopping ? DaemonStopping() : absl::OkStatus());
  }
}

}  // namespace megatrain

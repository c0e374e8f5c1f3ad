#include "server/transport/turn_scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/thread_name.h"
#include "server/base/error_reason.h"

namespace megatrain {

TurnScheduler::TurnScheduler(size_t streams_max)
    : streams_max_(streams_max), thread_([this] { Run(); }) {}

TurnScheduler::~TurnScheduler() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyOne();
  }
  thread_.join();
  MutexLock lock(&mutex_);
  while (alive_ > 0) gone_.Wait(&mutex_);
}

TurnScheduler::Stream::Stream(TurnScheduler* scheduler) : scheduler_(scheduler) {
  MutexLock lock(&scheduler_->mutex_);
  ++scheduler_->alive_;
}

TurnScheduler::Stream::~Stream() {
  MutexLock lock(&scheduler_->mutex_);
  if (--scheduler_->alive_ == 0) scheduler_->gone_.NotifyAll();
}

absl::Status TurnScheduler::Add(std::shared_ptr<Stream> stream) {
  MutexLock lock(&mutex_);
  if (streams_.size() >= streams_max_) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "the daemon serves ", streams_.size(), " streams, as many as it may")),
                      v1::LIMIT_REACHED,
                      {{"limit", "streams"}, {"value", absl::StrCat(streams_max_)}});
  }
  Stream* const added = stream.get();
  added->added_ = true;
  streams_.insert(std::move(stream));
  SetDue(added, Clock::now());
  return absl::OkStatus();
}

void TurnScheduler::Wake(Stream* stream) {
  MutexLock lock(&mutex_);
  if (stream->added_) WakeLocked(stream);
}

void TurnScheduler::WakeLocked(Stream* stream) {
  if (stream->turning_) {
    stream->woken_ = true;
  } else {
    SetDue(stream, Clock::now());
  }
}

void TurnScheduler::Remove(Stream* stream) {
  std::shared_ptr<Stream> removed;  // destroyed after the lock is released
  MutexLock lock(&mutex_);
  if (!stream->added_) return;
  SetDue(stream, kNever);
  stream->added_ = false;
  const auto found = streams_.find(stream->shared_from_this());
  removed = *found;
  streams_.erase(found);
  if (streams_.empty()) removed_.NotifyAll();
}

void TurnScheduler::Stop(std::chrono::milliseconds wait) {
  const Clock::time_point deadline = Clock::now() + wait;
  MutexLock lock(&mutex_);
  stopping_ = true;
  for (const std::shared_ptr<Stream>& stream : streams_) WakeLocked(stream.get());
  for (auto now = Clock::now(); !streams_.empty() && now < deadline; now = Clock::now()) {
    removed_.WaitFor(&mutex_, std::chrono::duration<double>(deadline - now).count());
  }
}

size_t TurnScheduler::streams() const {
  MutexLock lock(&mutex_);
  return streams_.size();
}

void TurnScheduler::SetDue(Stream* stream, Clock::time_point due) {
  if (stream->due_ != kNever) due_.erase({stream->due_, stream});
  stream->due_ = due;
  if (due == kNever) return;
  const auto place = due_.insert({due, stream}).first;
  if (place == due_.begin()) changed_.NotifyOne();
}

void TurnScheduler::Run() {
  NameThisThread("streams");
  for (;;) {
    std::shared_ptr<Stream> stream;
    bool stopping = false;
    {
      MutexLock lock(&mutex_);
      for (;;) {
        if (ending_) return;
        if (due_.empty()) {
          changed_.Wait(&mutex_);
          continue;
        }
        const Clock::duration wait = due_.begin()->first - Clock::now();
        if (wait <= Clock::duration::zero()) break;
        changed_.WaitFor(&mutex_, std::chrono::duration<double>(wait).count());
      }
      stream = due_.begin()->second->shared_from_this();
      SetDue(stream.get(), kNever);
      stream->turning_ = true;
      stream->woken_ = false;
      stopping = stopping_;
    }
    const Clock::time_point due = stream->Turn(Clock::now(), stopping);
    MutexLock lock(&mutex_);
    stream->turning_ = false;
    if (stream->added_) SetDue(stream.get(), stream->woken_ ? Clock::now() : due);
  }
}

}  // namespace megatrain

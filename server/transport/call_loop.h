// The one thread that takes calls from gRPC and hears how they go on.
//
// gRPC's own servers (callback and synchronous) keep several threads that wait for the network by
// turns and wake each other for it: a quarter of what a call that comes alone costs the daemon.
// Here a single thread waits, and while a job trains it lets calls gather: after it has answered
// what there was it sleeps a little before it looks again, as network cards do with interrupts.
// A call that comes alone finds its code and data out of the processor's caches, which a training
// step fills anew every few milliseconds; of those that come together only the first does, and
// their callers, if they are on the machine, are woken together too.
//
// Thread safety: all methods may be called from any thread; events happen on the loop's thread.
#ifndef MEGATRAIN_SERVER_TRANSPORT_CALL_LOOP_H_
#define MEGATRAIN_SERVER_TRANSPORT_CALL_LOOP_H_

#include <grpcpp/completion_queue.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "engine/base/mutex.h"

namespace megatrain {

class CallEvent {
 public:
  virtual ~CallEvent() = default;

  // What gRPC is given to tell of the event by. What was written before is seen when it happens.
  void* tag() {
#ifdef __SANITIZE_THREAD__
    __tsan_release(this);  // gRPC's locks order this, and are not seen by the sanitizer
#endif
    return this;
  }
  static CallEvent* Of(void* tag) {
#ifdef __SANITIZE_THREAD__
    __tsan_acquire(tag);
#endif
    return static_cast<CallEvent*>(tag);
  }

  // `ok` as of grpc::CompletionQueue::Next. Must not block.
  virtual void Happened(bool ok) = 0;
};

// An event that is told to a method of its owner.
template <class Owner, void (Owner::*kMethod)(bool ok)>
class CallEventOf final : public CallEvent {
 public:
  explicit CallEventOf(Owner* owner) : owner_(owner) {}
  void Happened(bool ok) override { (owner_->*kMethod)(ok); }

 private:
  Owner* const owner_;
};

class CallLoop {
 public:
  struct Options {
    // Whether calls are to gather. Asked after each burst of them; null: never.
    std::function<bool()> gather;
    // For how long. A caller waits this much longer at the most, for each time that it waits.
    std::chrono::microseconds nap{8000};
    // With more calls than this they come together by themselves, or their callers wait for each
    // answer before they call again: naps would only hold them up.
    int calls_per_second_max = 800;
  };

  // Serves `queue` at once.
  CallLoop(std::unique_ptr<grpc::ServerCompletionQueue> queue, const Options& options);
  // Stop.
  ~CallLoop();
  CallLoop(const CallLoop&) = delete;
  CallLoop& operator=(const CallLoop&) = delete;

  grpc::ServerCompletionQueue* queue() { return queue_.get(); }

  // Of every call that gives gRPC events on this queue, from before the first to after the last.
  void Opened();
  void Closed();
  // One of the calls that are to gather has been answered: from the loop's thread.
  void Answered() { ++answered_; }

  // Waits until no call is open and ends. REQUIRES: the server is shut down, so that calls which
  // wait for a caller are given back.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;

  void Run();
  // Whether to nap after a burst in which calls were answered.
  bool Naps();

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  const Options options_;
  Mutex mutex_;
  CondVar closed_;
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;

  // Of the loop's thread.
  int64_t answered_ = 0;
  int64_t answered_before_window_ = 0;
  Clock::time_point window_begin_{};
  bool busy_ = false;  // in the window before

  std::thread thread_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_CALL_LOOP_H_

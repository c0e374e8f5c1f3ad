// A few threads for calls that wait for a disk, so that gRPC's own are always free for those that
// do not: bounded in threads, and in the number and the bytes of calls that wait.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_TRANSPORT_CALL_QUEUE_H_
#define MEGATRAIN_SERVER_TRANSPORT_CALL_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace megatrain {

class CallQueue {
 public:
  CallQueue(int threads, size_t waiting_max, size_t waiting_bytes_max);
  // Stop.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // `call` is run once, with OK, or without having waited to its end with STOPPING. An error
  // (OVERLOADED, STOPPING) means that it will not be run. `bytes` is what it holds while it waits;
  // one call may hold more than all may together.
  absl::Status Add(size_t bytes, std::function<void(const absl::Status& status)> call);

  // Runs what waits with STOPPING and waits for what runs.
  void Stop();

 private:
  struct Call {
    size_t bytes = 0;
    std::function<void(const absl::Status&)> run;
  };

  void Run();

  const size_t waiting_max_;
  const size_t waiting_bytes_max_;
  Mutex mutex_;
  CondVar added_;
  std::deque<Call> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_CALL_QUEUE_H_

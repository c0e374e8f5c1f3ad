// A few threads for calls that wait for a disk, so that gRPC's own threads are always free for
// calls that do not. The number of threads and the number and bytes of waiting calls are bounded.
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

  // Runs `call` once on a thread of the queue: with OK in its turn, or with Unavailable (STOPPING)
  // when the queue stops before. `bytes` is the memory that it holds while it waits; a call that
  // waits alone may hold any number. Returns Unavailable (OVERLOADED, STOPPING) if `call` will not
  // be run. Does not block.
  absl::Status Add(size_t bytes, std::function<void(const absl::Status& status)> call);

  // Runs waiting calls with STOPPING, and returns when none runs any more. One thread at a time.
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

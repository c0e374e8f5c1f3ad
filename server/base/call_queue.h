// CallQueue runs calls that wait for a disk on a few threads, so that the threads that add them
// stay free. The number of threads and the number and bytes of waiting calls are bounded.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_BASE_CALL_QUEUE_H_
#define MEGATRAIN_SERVER_BASE_CALL_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace megatrain {

class CallQueue {
 public:
  // At most `waiting_max` calls wait, and they hold at most `waiting_bytes_max` bytes. `name` is
  // that of the threads.
  CallQueue(std::string name, int threads, size_t waiting_max, size_t waiting_bytes_max);
  // Stops, as Stop does.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Runs `call` once on a thread of the queue: with OK in its turn, or with Unavailable (STOPPING)
  // if Stop is called before. `bytes` is the memory that the call holds while it waits. A call that
  // waits alone may hold any number. Returns an error if `call` will not be run: Unavailable
  // (OVERLOADED) if too many or too large calls wait, Unavailable (STOPPING) after Stop. Does not
  // wait.
  absl::Status Add(size_t bytes, std::function<void(const absl::Status& status)> call);

  // Runs the waiting calls with STOPPING, and returns when no call runs any more. Must not be
  // called by two threads at once, nor from a call.
  void Stop();

 private:
  struct Call {
    size_t bytes = 0;
    std::function<void(const absl::Status&)> run;
  };

  void Run();

  const std::string name_;
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

#endif  // MEGATRAIN_SERVER_BASE_CALL_QUEUE_H_

// CallQueue runs calls that wait for a disk on a few threads, so that the threads that add them
// stay free. Calls begin in the order in which they were added. The number of threads and the
// number and bytes of waiting calls are bounded.
//
// Thread safety: all methods may be called from any thread, Stop from one at a time.
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
  // Starts the threads. At most `waiting_max` calls wait, and they hold at most `waiting_bytes_max`
  // bytes, except for one that waits alone. `name` is that of the threads (NameThisThread).
  // REQUIRES: threads > 0.
  CallQueue(std::string name, int threads, size_t waiting_max, size_t waiting_bytes_max);
  // Stops, as Stop does.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Adds `call`, which runs once on a thread of the queue. It is given OK in its turn, or
  // Unavailable (STOPPING) if Stop is called before that. `bytes` is the memory that the call holds
  // while it waits. A call that waits alone may hold any number. Does not wait for a call.
  //
  // Returns an error if `call` will not run: Unavailable (OVERLOADED) if too many or too large
  // calls wait, and Unavailable (STOPPING) once Stop is called.
  absl::Status Add(size_t bytes, std::function<void(const absl::Status& status)> call);

  // Has the queue's threads run the waiting calls with Unavailable (STOPPING), and returns when no
  // call runs any more. May be called again. Must not be called by two threads at once, nor from a
  // call of the queue.
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

// Deadline calls a function, on a thread of its own, unless it is destroyed before its time: for
// calls of libraries that may wait for ever, and can be told nothing meanwhile.
#ifndef MEGATRAIN_SERVER_COMMANDS_DEADLINE_H_
#define MEGATRAIN_SERVER_COMMANDS_DEADLINE_H_

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace megatrain {

class Deadline {
 public:
  // `late` is called at most once. It may end the process, and must not destroy the deadline. Time
  // for which the machine is suspended does not count.
  Deadline(absl::Duration patience, std::function<void()> late);
  // Waits for a call that is under way.
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  void Wait(absl::Duration patience, const std::function<void()>& late);

  Mutex mutex_;
  CondVar changed_;
  bool met_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_COMMANDS_DEADLINE_H_

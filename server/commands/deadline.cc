#include "server/commands/deadline.h"

#include <chrono>
#include <utility>

namespace megatrain {

Deadline::Deadline(absl::Duration patience, std::function<void()> late)
    : thread_([this, patience, late = std::move(late)] { Wait(patience, late); }) {}

Deadline::~Deadline() {
  {
    MutexLock lock(&mutex_);
    met_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void Deadline::Wait(absl::Duration patience, const std::function<void()>& late) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + absl::ToChronoNanoseconds(patience);
  {
    MutexLock lock(&mutex_);
    while (!met_ && Clock::now() < end) {
      changed_.WaitFor(&mutex_, std::chrono::duration<double>(end - Clock::now()).count());
    }
    if (met_) return;
  }
  late();
}

}  // namespace megatrain

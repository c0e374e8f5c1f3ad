#include "server/commands/deadline.h"

#include <utility>

#include "absl/time/clock.h"

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
  const absl::Time end = absl::Now() + patience;
  {
    MutexLock lock(&mutex_);
    while (!met_ && absl::Now() < end) {
      changed_.WaitFor(&mutex_, absl::ToDoubleSeconds(end - absl::Now()));
    }
    if (met_) return;
  }
  late();
}

}  // namespace megatrain

#include "engine/training_control.h"

#include <utility>

namespace megatrain {
bool TrainingControl::Stop() { return (requests_.fetch_or(kStop) & kStop) != 0; }
void TrainingControl::Checkpoint() { requests_.fetch_or(kCheckpoint); }
void TrainingControl::Cancel() { Change(kCancel, 0); }
void TrainingControl::Pause() { Change(kPause | kPauseNotice, 0); }
void TrainingControl::Release() { Change(kRelease, 0); }
void TrainingControl::Resume() { Change(0, kPause); }

void TrainingControl::Change(uint32_t set, uint32_t clear) {
  MutexLock lock(&mutex_);
  requests_.fetch_or(set);
  requests_.fetch_and(~clear);
  changed_.NotifyAll();
  if (tell_) tell_();
}

void TrainingControl::TellRequests(std::function<void()> tell) {
  MutexLock lock(&mutex_);
  tell_ = std::move(tell);
}

void TrainingControl::WaitWhilePaused(bool wake_for_checkpoint) {
  const uint32_t ignored = kPauseNotice | (wake_for_checkpoint ? 0u : kCheckpoint);
  MutexLock lock(&mutex_);
  while ((load() & ~ignored) == kPause) changed_.Wait(&mutex_);
}

}  // namespace megatrain

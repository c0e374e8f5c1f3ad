// Requests to a run from outside, honoured between steps; Cancel also within one.
//
// No request waits for more than the step under way: the training thread takes back at once the
// step that is queued behind it. Pause, Release and Stop also give up the step under way while it
// is in its first forward pass: it has changed nothing, and a third of a step at most is lost. It
// is made again later, and is not given up a second time. Stop lets the run's first step finish, so
// that there is something to save. Cancel waits for no step.
//
// Thread safety: all methods from any thread; Stop and Checkpoint from signal handlers as well,
// which see nothing but atomics. WaitWhilePaused is the training thread's.
#ifndef MEGATRAIN_ENGINE_TRAINING_CONTROL_H_
#define MEGATRAIN_ENGINE_TRAINING_CONTROL_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "engine/base/mutex.h"

namespace megatrain {

class TrainingControl {
 public:
  // Finish the step under way or give up its forward pass; save; end as kInterrupted. While
  // preparing, end at once. Returns whether it had been asked for before.
  bool Stop();
  // Save after the step; at once while paused.
  void Checkpoint();
  // A signal handler cannot wake a run that is paused: any other caller of Stop and Checkpoint
  // calls this too.
  void Wake() { Change(0, 0); }
  // End as kCancelled, saving nothing; also while preparing, paused or saving.
  void Cancel();
  // Finish the step under way or give up its forward pass; give the device's memory back; wait for
  // Resume with the host state kept. Asked for while preparing, it takes effect before the first
  // step.
  void Pause();
  // As Pause, but save and end as kReleased: all memory goes back. While preparing, end at once.
  void Release();
  // Ends a pause, or withdraws one that has not taken effect: either way StepsBegin follows.
  void Resume();

  bool stop_requested() const { return (load() & kStop) != 0; }
  bool cancel_requested() const { return (load() & kCancel) != 0; }
  bool release_requested() const { return (load() & kRelease) != 0; }
  bool checkpoint_requested() const { return (load() & kCheckpoint) != 0; }
  bool pause_requested() const { return (load() & kPause) != 0; }

  // Of the training thread: whether there is anything to honour between steps.
  bool Any() const { return load() != 0; }
  // Whether it was asked for since it was taken last.
  bool TakeCheckpoint() { return Take(kCheckpoint); }
  bool TakeRelease() { return Take(kRelease); }
  // Whether Pause was called since, even if Resume was too.
  bool TakePauseNotice() { return Take(kPauseNotice); }
  // Blocks while a pause is asked for and none of the others; Checkpoint counts as `told`.
  void WaitWhilePaused(bool wake_for_checkpoint);
  // `tell` is called after every request but those of signal handlers, on the thread that asks,
  // until it is replaced; null: nobody. It must not call this object's methods that change it.
  void TellRequests(std::function<void()> tell);

 private:
  enum Request : uint32_t {
    kStop = 1,
    kCheckpoint = 2,
    kCancel = 4,
    kRelease = 8,
    kPause = 16,
    kPauseNotice = 32,
  };
  uint32_t load() const { return requests_.load(); }
  bool Take(uint32_t request) { return (requests_.fetch_and(~request) & request) != 0; }
  void Change(uint32_t set, uint32_t clear);

  std::atomic<uint32_t> requests_{0};
  Mutex mutex_;
  CondVar changed_;
  std::function<void()> tell_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRAINING_CONTROL_H_

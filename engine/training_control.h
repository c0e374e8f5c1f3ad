// TrainingControl carries requests from outside to one run, also from before it begins. The run
// honors them between steps. It also honors pauses between the batches of an evaluation and between
// the groups of sample prompts that are answered together, and Cancel within a step. Stop and
// Cancel cannot be withdrawn.
//
// A request waits for the step under way, with these exceptions:
// - Cancel waits for running operations only.
// - Pause, Release and Stop give up the step under way while it is in its first forward pass,
//   unless a save reads it. By then the step has changed nothing, and a third of a step at most is
//   lost. The run makes the step again later and does not give it up a second time. Stop lets the
//   run's first step finish, so that there is something to save.
// A step that is queued behind the one under way is taken back, unless it has begun to change the
// model or a save reads it. With several devices no step is given up or taken back. A job of
// several processes does not honor Pause, and Release only while preparing.
//
// Thread safety: all methods may be called from any thread, and Stop and Checkpoint also from
// signal handlers, because they only change atomics. The Take methods and WaitWhilePaused are for
// the training thread.
#ifndef MEGATRAIN_ENGINE_TRAINING_CONTROL_H_
#define MEGATRAIN_ENGINE_TRAINING_CONTROL_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "engine/base/mutex.h"

namespace megatrain {

class TrainingControl {
 public:
  // ---- Requests ----

  // Asks the run to save and to end as kInterrupted. While preparing, the run ends at once. A run
  // that cannot save fails. Returns true if Stop was called before.
  bool Stop();
  // Asks the run to save a checkpoint after the step under way. A run that is paused between steps
  // saves at once, one that is paused in an evaluation after it.
  void Checkpoint();
  // Wakes a run that is paused, so that it sees requests. Stop and Checkpoint do not wake it,
  // because signal handlers may call them; every other caller of them must call Wake too.
  void Wake() { Change(0, 0); }
  // Asks the run to end as kCancelled without saving, also while preparing, paused or saving.
  void Cancel();
  // Asks the run to give the device's memory back, to keep its host state and to wait for Resume.
  // While preparing, the pause takes effect before the first step.
  void Pause();
  // Asks the run to save and to end as kReleased, so that all memory is given back. While
  // preparing, the run ends at once. A run that cannot save pauses instead.
  void Release();
  // Ends a pause, or withdraws one that has not taken effect. In both cases StepsBegin is reported
  // when steps go on.
  void Resume();

  // ---- For the run ----

  bool stop_requested() const { return (load() & kStop) != 0; }
  bool cancel_requested() const { return (load() & kCancel) != 0; }
  bool release_requested() const { return (load() & kRelease) != 0; }
  bool checkpoint_requested() const { return (load() & kCheckpoint) != 0; }
  bool pause_requested() const { return (load() & kPause) != 0; }

  // Returns true if there is anything to honor between steps.
  bool Any() const { return load() != 0; }
  // Return true if the request was made since the last call, and clear it.
  bool TakeCheckpoint() { return Take(kCheckpoint); }
  bool TakeRelease() { return Take(kRelease); }
  // Returns true if Pause was called since the last call, even if Resume was called too.
  bool TakePauseNotice() { return Take(kPauseNotice); }
  // Blocks while a pause is requested and nothing else is, a checkpoint apart. With
  // `wake_for_checkpoint` a requested checkpoint ends the wait too.
  void WaitWhilePaused(bool wake_for_checkpoint);
  // Sets the function that Cancel, Pause, Release, Resume and Wake call, on the thread that calls
  // them; null unsets it. `tell` must not call methods of this object that change it. Once this
  // returns, the function set before is not running and is not called again.
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

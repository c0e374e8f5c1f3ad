// Watchdog finds out that a run hangs, which means that nothing has advanced for longer than its
// phase allows. The limit of a step follows from the durations of the steps before it. Work that
// may take any time calls Alive as it goes on: a first step as its operations end, an evaluation
// with each batch, and reading, tokenizing and saving as bytes pass. Only the silence since the
// last call counts.
//
// A run of several processes hangs only when none of them advances, because the others wait while
// one of them saves. Each process has a watchdog, and WatchdogOptions::share combines them.
//
// Thread safety: all methods may be called from any thread. `stalled` is called on the watchdog's
// own thread, or on the thread that calls Check.
#ifndef MEGATRAIN_SERVER_WORKER_WATCHDOG_H_
#define MEGATRAIN_SERVER_WORKER_WATCHDOG_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "engine/run_event.h"

namespace megatrain {

struct WatchdogOptions {
  // A step may take step_factor times the longest of the last kStepsRemembered steps, and always
  // step_seconds_min, so that a machine that swaps or is suspended does not make a step of
  // milliseconds count as hanging.
  double step_factor = 8;
  double step_seconds_min = 120;
  // The longest silence in a first step, whose time is not known.
  double first_step_seconds = 1800;
  // The longest silence in the phases kPreparing and kSaving. A sync of what a slow disk has not
  // written yet is one silent call, and 100 GB of page cache at 100 MB/s take 1,000 s.
  double preparing_seconds = 1800;
  double saving_seconds = 1800;

  // The watchdog's thread calls Check this often.
  double poll_seconds = 1;
  // If Check was not called for longer than this, the process was stopped, for example by Ctrl-Z or
  // a debugger, and the silence is counted anew. REQUIRES: it is more than poll_seconds.
  double stopped_seconds = 30;
  // Takes the seconds for which this process may still be silent (infinity: any number), and
  // returns the seconds for which the whole job may still be silent. The job hangs when these are
  // negative. Called by each Check, with a lock held, so it must not call the watchdog. Empty if
  // the job has one process.
  std::function<double(double seconds)> share;
  // Returns the seconds of a monotonic clock. Must not call the watchdog. Empty: the system's.
  std::function<double()> now;
};

class Watchdog {
 public:
  static constexpr int kStepsRemembered = 16;

  // Starts a thread that calls Check. `stalled` must not be empty. It is called with a text for
  // people that says what stands still and for how long. It is called again only if something
  // advanced in between. It must not destroy the watchdog.
  Watchdog(const WatchdogOptions& options, std::function<void(const std::string& why)> stalled);
  // Ends the thread, and waits for a call of `stalled` by it that is under way.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Begins a phase. A new watchdog is in kPaused, in which any silence is allowed. `what` tells
  // people what is done in the phase, for example "saving step 7". If it is empty, a word for the
  // phase stands for it.
  void Enter(TrainingPhase phase, const std::string& what = "");
  // Says that something went on in the phase.
  void Alive();
  // Says that step `step` is done and took `step_seconds`.
  void StepDone(int64_t step, double step_seconds);
  // Calls Enter for a TrainingActivity, StepDone for a StepRecord, and notes progress at
  // StepsBegin. Does nothing for other events.
  void Follow(const RunEvent& event);

  // While a Rest lives any silence is allowed, as in kPaused. At its end the silence is counted
  // anew. It is for code that waits for people, as at a terminal that is held. At most one may live
  // at a time, and the watchdog must outlive it.
  class Rest {
   public:
    explicit Rest(Watchdog& watchdog) : watchdog_(watchdog) { watchdog_.SetResting(true); }
    ~Rest() { watchdog_.SetResting(false); }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    Watchdog& watchdog_;
  };

  // Calls `stalled` if the run hangs and this was not told yet, unless this process's phase allows
  // any silence.
  void Check();
  // Returns the seconds of silence that this process's phase allows now; negative: any number.
  double limit_seconds() const;

 private:
  double Now() const;
  void SetResting(bool resting);
  // Notes that something advanced now.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double Limit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Poll();

  const WatchdogOptions options_;
  const std::function<void(const std::string& why)> stalled_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  TrainingPhase phase_ ABSL_GUARDED_BY(mutex_) = TrainingPhase::kPaused;
  bool resting_ ABSL_GUARDED_BY(mutex_) = false;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  double advanced_ ABSL_GUARDED_BY(mutex_) = 0;  // when
  double looked_ ABSL_GUARDED_BY(mutex_);        // when
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;  // seen
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;   // the last one that is done
  std::array<double, kStepsRemembered> step_seconds_ ABSL_GUARDED_BY(mutex_) = {};
  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_WATCHDOG_H_

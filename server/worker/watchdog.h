// Watchdog finds out that a run hangs: nothing has advanced for longer than its phase allows. A
// step is measured by the steps before it. Other work reports progress with Alive: a first step as
// its operations end; an evaluation with each batch; reading, tokenising and saving as bytes pass.
// There only the silence since the last report counts, so it may take any time.
//
// A run of several processes hangs only when none of them advances, because the others wait while
// one of them saves. Each process has a watchdog, and WatchdogOptions::share combines them.
//
// Thread safety: all methods may be called from any thread. `stalled` is called on the watchdog's
// own thread, or by Check.
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
  // A step may take this many times the longest of the last kStepsRemembered.
  double step_factor = 8;
  // And at least this long: steps of milliseconds wait for a machine that swaps or is suspended.
  double step_seconds_min = 120;
  // The longest silence in a first step, whose time is not known.
  double first_step_seconds = 1800;
  // The longest silence in these phases. A sync of what a slow disk has not written yet is one
  // call: 100 GB of page cache at 100 MB/s are 1,000 s.
  double preparing_seconds = 1800;
  double saving_seconds = 1800;

  // The watchdog looks this often.
  double poll_seconds = 1;
  // If it could not look for longer than this, the process was stopped, as by Ctrl-Z or a debugger,
  // and the silence is counted anew. REQUIRES: it is more than poll_seconds.
  double stopped_seconds = 30;
  // Takes the seconds for which this process may still be silent (infinity: any number), and
  // returns those for the whole job, which hangs when they are negative. Called with a lock held:
  // it must not call the watchdog. Empty for a process alone.
  std::function<double(double seconds)> share;
  // Returns the seconds of a monotonic clock. Must not call the watchdog. Empty: the system's.
  std::function<double()> now;
};

class Watchdog {
 public:
  static constexpr int kStepsRemembered = 16;

  // `stalled` must not be null. It is called with what stands still and for how long. It is called
  // again only if something advanced in between. It must not destroy the watchdog.
  Watchdog(const WatchdogOptions& options, std::function<void(const std::string& why)> stalled);
  // Waits for a call that is under way.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Begins a phase. A new watchdog is in kPaused, in which nothing is expected. `what` is done in
  // it, for example "saving step 7"; empty: what the phase is called.
  void Enter(TrainingPhase phase, const std::string& what = "");
  // Says that something went on in the phase.
  void Alive();
  // Says that step `step` is done and took `step_seconds`.
  void Step(int64_t step, double step_seconds);
  // Updates the phase, or the last step, from an event of the run.
  void Follow(const RunEvent& event);

  // While a Rest lives nothing is expected, as in kPaused; then the phase begins anew. For code
  // that waits for people, as at a terminal that is held. At most one may live at a time.
  class Rest {
   public:
    explicit Rest(Watchdog& watchdog) : watchdog_(watchdog) { watchdog_.SetResting(true); }
    ~Rest() { watchdog_.SetResting(false); }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    Watchdog& watchdog_;
  };

  // Calls `stalled` if the run hangs. The watchdog's thread does this every poll_seconds.
  void Check();
  // Returns the seconds of silence that are allowed now; negative: any.
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

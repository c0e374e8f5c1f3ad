// Finds out that a run hangs: that nothing has advanced for several times what it should take.
// What is to be expected depends on what is being done. A step's time is known from the steps
// before; reading, tokenising and saving tell that they go on as bytes pass, and only silence
// counts, so that they may take any time.
//
// Thread safety: all methods from any thread. `stalled` is called on the watchdog's own thread.
#ifndef MEGATRAIN_SERVER_WORKER_WATCHDOG_H_
#define MEGATRAIN_SERVER_WORKER_WATCHDOG_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "engine/base/mutex.h"

namespace megatrain {

struct WatchdogOptions {
  // A step may take this many times the longest of the last kStepsRemembered.
  double step_factor = 8;
  // And at least this long: steps of milliseconds wait for a machine that swaps or is suspended.
  double step_seconds_min = 120;
  // Before a step's time is known: a model's first step on a loaded machine.
  double first_step_seconds = 1800;
  // Of silence. A sync of what a slow disk has not written yet is one call: 100 GB of page cache at
  // 100 MB/s are 1,000 s.
  double preparing_seconds = 1800;
  double saving_seconds = 1800;

  // How often it looks.
  double poll_seconds = 1;
  // Seconds of a clock that only goes forward; empty: the system's.
  std::function<double()> now;
};

class Watchdog {
 public:
  enum class Phase { kIdle, kPreparing, kStepping, kSaving };
  static constexpr int kStepsRemembered = 16;

  // `stalled` is told what stands still and since when: once, until something advances again.
  Watchdog(const WatchdogOptions& options, std::function<void(const std::string& why)> stalled);
  // Waits for a call that is under way.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Begins in kIdle, in which nothing is expected.
  void Enter(Phase phase);
  // Something went on in the phase.
  void Alive();
  void Step(int64_t step, double step_seconds);

  // Looks now: what the thread does again and again.
  void Check();
  // Seconds of silence that are allowed now; negative: any.
  double limit_seconds() const;

 private:
  double Now() const;
  double Limit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Poll();

  const WatchdogOptions options_;
  const std::function<void(const std::string& why)> stalled_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kIdle;
  double advanced_ ABSL_GUARDED_BY(mutex_) = 0;  // when
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;  // seen
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;   // the last one's number
  std::array<double, kStepsRemembered> step_seconds_ ABSL_GUARDED_BY(mutex_) = {};
  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_WATCHDOG_H_

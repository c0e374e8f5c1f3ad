// Who looks on while jobs run, beside the scheduler: metrics, the service manager.
#ifndef MEGATRAIN_SERVER_WORKER_RUN_OBSERVER_H_
#define MEGATRAIN_SERVER_WORKER_RUN_OBSERVER_H_

#include <cstdint>
#include <string>

#include "engine/job/job_spec.h"
#include "engine/trace/step_record.h"
#include "server/worker/job_runner.h"

namespace megatrain {

struct ObservedRun {
  std::string job_id;
  int64_t uid = -1;  // the submitter's
  JobSpec spec;
};

// What RunCallbacks tell, of every job. Called on the job's own thread: must not block long. Those
// of one job come one after another; of two jobs (one paused in place) at the same time.
class RunObserver {
 public:
  virtual ~RunObserver() = default;

  virtual void Preparing(const ObservedRun& run, const std::string& activity, double fraction) {}
  virtual void Running(const ObservedRun& run, int64_t first_step, int64_t total_steps) {}
  virtual void Step(const ObservedRun& run, const StepRecord& record) {}
  // `seconds`: from its first byte to its verified end.
  virtual void Checkpoint(const ObservedRun& run, int64_t step, double seconds) {}
  virtual void Paused(const ObservedRun& run, const RunPause& pause) {}
  virtual void Ended(const ObservedRun& run, const RunEnd& end) {}
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_RUN_OBSERVER_H_

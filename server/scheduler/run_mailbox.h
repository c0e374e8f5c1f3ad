// RunMailbox carries events of runs from the engine's threads to the scheduler's. All but steps are
// in order.
//
// Thread safety: all methods may be called from any thread. Posting never waits for the scheduler.
// Invariants: the mailbox stays small, because it keeps only the newest step of each job, and other
// events are few.
#ifndef MEGATRAIN_SERVER_SCHEDULER_RUN_MAILBOX_H_
#define MEGATRAIN_SERVER_SCHEDULER_RUN_MAILBOX_H_

#include <map>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/trace/step_record.h"
#include "server/worker/job_runner.h"

namespace megatrain {

class RunMailbox : public RunObserver {
 public:
  struct Report {
    std::string job_id;
    JobRunEvent event;
  };
  struct Progress {
    StepRecord record;
    double step_seconds = 0;  // moving average; the newest step counts for a tenth
  };
  struct Mail {
    std::vector<Report> reports;               // all but steps and what Tell drops, in order
    std::map<std::string, Progress> progress;  // the newest step of each job, by its id
  };

  // Posts an event. RunMessage, SampledAnswer, TrainingActivity, BeforeCheckpoint and
  // CheckpointFailed are dropped, because the scheduler needs none of them.
  void Tell(const RunRequest& run, const JobRunEvent& event) override;
  // Makes Wait return at once, because something else has changed. This applies to a Wait under way
  // and to later ones until the next Take.
  void Wake();

  // Returns what was posted since the last call; of steps, each job's newest. Does not wait.
  Mail Take();
  // Waits until there is a report or a Wake since the last Take, but at most for `seconds`. If
  // steps were posted, waits at most for `step_seconds`.
  void Wait(double seconds, double step_seconds);

 private:
  Mutex mutex_;
  CondVar changed_;
  Mail mail_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, double> pace_ ABSL_GUARDED_BY(mutex_);  // seconds a step, by job
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_RUN_MAILBOX_H_

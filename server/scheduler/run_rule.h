// Decides what the scheduler does next about a job that the runner (JobRunner) has. The decision
// follows from the job's state and from what the runner told, and has no side effects. Applied
// repeatedly until there is nothing to do, it makes the job and its run agree, whatever happened in
// between. So only the job and its RunFacts need to be remembered.
#ifndef MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_
#define MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_

#include <cstdint>

#include "server/jobs/job.h"
#include "server/worker/job_runner.h"

namespace megatrain {

// RunFacts holds what the runner has reported about the run of one job, and what the scheduler has
// asked the runner to do with it.
struct RunFacts {
  enum class Phase {
    kPreparing,
    kTraining,
    kPaused,  // in place
    kEnded,   // the runner no longer knows the run
  };
  Phase phase = Phase::kPreparing;

  // The values of the last StepsBegin. `steps_unstored` is true until the ledger has stored them
  // or has the job as PAUSED.
  int64_t first_step = 0, total_steps = 0;
  bool steps_unstored = false;
  int64_t step = 0;             // the last one that is done
  int64_t checkpoint_step = 0;  // of the newest verified checkpoint of this run; 0 = none
  TrainingPause pause;          // the last one; valid in kPaused
  // The release, or the resumption, that was asked for has failed, for the reason in `pause`. Both
  // are false again once the ledger has the job as PAUSED, and each when the same is asked again;
  // release_failed also once steps begin.
  bool release_failed = false, resume_failed = false;
  RunEnd end;  // valid in kEnded

  // The requests to the runner that it has not answered and that no later request has replaced.
  // NoteAsked sets them. Once set, cancel_asked and stop_asked stay set.
  bool pause_asked = false, release_asked = false, resume_asked = false;
  bool cancel_asked = false, stop_asked = false;

  // Returns true if the run may use its devices: it prepares, trains or saves, is asked to do or
  // end something, or has ended and is not forgotten yet.
  bool Occupies() const {
    return phase != Phase::kPaused || release_asked || resume_asked || cancel_asked || stop_asked;
  }
};

// Changes the facts as `event` says. Events that change no fact are ignored.
void Apply(const JobRunEvent& event, RunFacts* facts);

struct RunAction {
  enum class Kind {
    kNone,
    kChange,  // change the job as `change` says, then call NoteChanged
    kAsk,     // ask the runner for `wish`, then call NoteAsked
    kForget,  // drop the facts: the run has ended, and the job's state says so
  };
  Kind kind = Kind::kNone;
  JobChange change;
  RunWish wish = RunWish::kPause;
};

// Returns the next action about a job with a run; kNone if there is nothing to do. `stopping` says
// that the daemon is stopping.
RunAction DecideRun(const Job& job, const RunFacts& facts, bool stopping);

// Notes that the runner was asked for `wish`.
void NoteAsked(RunWish wish, RunFacts* facts);
// Notes that a change that DecideRun returned is stored, and that the job is in `state` now.
void NoteChanged(JobState state, RunFacts* facts);

// Returns the action for a job that the runner does not have: a change as after a restart
// (StateAfterRestart) if the job is active, and kNone if not. A PAUSED job whose host memory is not
// kept is active without a run when it is cancelled.
RunAction DecideWithoutRun(const Job& job);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_

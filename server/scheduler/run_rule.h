// Decides what is to be done next about a job that the runner has. The decision follows from the
// job's state and from what the runner told, and has no side effects. Applied again and again until
// there is nothing to do, it brings job and run together whatever happened in between. So no
// request and no answer needs to be remembered.
#ifndef MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_
#define MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_

#include "server/jobs/job.h"
#include "server/jobs/job_change.h"
#include "server/scheduler/run_facts.h"

namespace megatrain {

struct RunAction {
  enum class Kind {
    kNone,
    kChange,  // change the job as `change` says
    kAsk,     // ask the runner for `wish`
    kForget,  // the run has ended and the job's state says so
  };
  Kind kind = Kind::kNone;
  JobChange change;
  RunWish wish = RunWish::kPause;
};

// Returns the next action; kNone: there is nothing to do. `stopping`: the daemon is stopping.
RunAction DecideRun(const Job& job, const RunFacts& facts, bool stopping);

// Notes that the runner was asked for `wish`.
void NoteAsked(RunWish wish, RunFacts* facts);
// Notes that a change that DecideRun wanted was made, and that the job is in `state` now.
void NoteChanged(JobState state, RunFacts* facts);

// Returns the action for an active job that the runner does not have, as one that was cancelled
// while its host memory was not kept: a change, or kNone if the job is not active.
RunAction DecideWithoutRun(const Job& job);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_

// What is to be done next about a job that the runner has: a pure function of the job's state and
// of what the runner told. Applied again and again until there is nothing to do, it brings both
// together whatever happened in between; so no request and no answer needs to be remembered.
#ifndef MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_
#define MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_

#include "server/jobs/job.h"
#include "server/jobs/job_change.h"
#include "server/scheduler/run_facts.h"

namespace megatrain {

struct RunAction {
  enum class Kind {
    kNone,
    kChange,   // the job, as `change` says
    kPause,    // ask the runner
    kRelease,  // ask the runner: pause and give the host memory back
    kResume,
    kCancel,
    kStop,
    kForget,  // the run has ended and the job's state says so
  };
  Kind kind = Kind::kNone;
  JobChange change;
};

// `stopping`: the daemon is.
RunAction DecideRun(const Job& job, const RunFacts& facts, bool stopping);

// The runner was asked for what `kind` says.
void NoteAsked(RunAction::Kind kind, RunFacts* facts);
// A change that DecideRun wanted was made; the job is in `state` now.
void NoteChanged(JobState state, RunFacts* facts);

// The same for an active job that the runner does not have: one that was cancelled while its host
// memory was not kept.
RunAction DecideWithoutRun(const Job& job);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_

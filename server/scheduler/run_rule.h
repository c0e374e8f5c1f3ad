// Decides what is to be done next about a job that the runner has. The decision follows from the
// job's state and from what the runner told, and has no side effects. Applied repeatedly until
// there is nothing to do, it makes the job and its run agree, whatever happened in between. So no
// request and no answer needs to be remembered.
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

  // The values of the last StepsBegin. `steps_unstored` is true until they are stored.
  int64_t first_step = 0, total_steps = 0;
  bool steps_unstored = false;
  int64_t step = 0;             // the last one that is done
  int64_t checkpoint_step = 0;  // newest verified
  TrainingPause pause;          // kPaused
  // The release or the resumption failed, and the ledger does not have the job as PAUSED yet.
  // `pause` says why.
  bool release_failed = false, resume_failed = false;
  RunEnd end;  // for kEnded

  // The requests to the runner (NoteAsked sets them) that it has not answered and that no later one
  // has replaced. The last two stay set until the run has ended.
  bool pause_asked = false, release_asked = false, resume_asked = false;
  bool cancel_asked = false, stop_asked = false;

  // Returns true if the runner is at work for the job: it prepares, trains, saves, is about to end,
  // or has ended and is not forgotten yet.
  bool Occupies() const {
    return phase != Phase::kPaused || release_asked || resume_asked || cancel_asked || stop_asked;
  }
};

// Changes the facts as `event` says. Events that change no fact are ignored.
void Apply(const JobRunEvent& event, RunFacts* facts);

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

void NoteAsked(RunWish wish, RunFacts* facts);
// Notes that a change that DecideRun wanted was made, and that the job is in `state` now.
void NoteChanged(JobState state, RunFacts* facts);

// Returns the action for an active job that the runner does not have, for example one that was
// cancelled while its host memory was not kept. It is a change, or kNone if the job is not active.
RunAction DecideWithoutRun(const Job& job);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_RUN_RULE_H_

// What is known of a job that the runner has: what it told, and what it was asked.
#ifndef MEGATRAIN_SERVER_SCHEDULER_RUN_FACTS_H_
#define MEGATRAIN_SERVER_SCHEDULER_RUN_FACTS_H_

#include <cstdint>

#include "server/worker/job_runner.h"

namespace megatrain {

struct RunFacts {
  enum class Phase {
    kPreparing,
    kTraining,
    kPaused,  // in place
    kEnded,   // the runner does not know it any more
  };
  Phase phase = Phase::kPreparing;

  // Told with the last StepsBegin; `steps_told` until it is stored.
  int64_t first_step = 0, total_steps = 0;
  bool steps_told = false;
  int64_t step = 0;             // the last one that is done
  int64_t checkpoint_step = 0;  // newest verified
  TrainingPause pause;          // kPaused
  bool release_failed = false;  // the last release or resumption; `pause` says why
  bool resume_failed = false;
  RunEnd end;  // kEnded

  // Asked and not yet answered.
  bool pause_asked = false, release_asked = false, resume_asked = false;
  bool cancel_asked = false, stop_asked = false;

  // The runner is at work for it: it prepares, trains, saves, or is about to end.
  bool Occupies() const {
    return phase != Phase::kPaused || release_asked || resume_asked || cancel_asked || stop_asked;
  }
};

// Takes in what the runner tells. Events that change no fact are left alone.
void Apply(const JobRunEvent& event, RunFacts* facts);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_RUN_FACTS_H_

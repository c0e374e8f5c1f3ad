#include "server/scheduler/run_facts.h"

namespace megatrain {

void TellRunning(int64_t first_step, int64_t total_steps, RunFacts* facts) {
  facts->phase = RunFacts::Phase::kTraining;
  facts->first_step = first_step;
  facts->total_steps = total_steps;
  facts->steps_told = true;
  facts->step = first_step - 1;
  facts->pause = RunPause{};
  facts->pause_asked = facts->resume_asked = false;
}

void TellPaused(const RunPause& pause, RunFacts* facts) {
  facts->phase = RunFacts::Phase::kPaused;
  facts->pause = pause;
  facts->pause_asked = false;
  if (pause.failure != RunFailure::kNone) {
    // The answer to a release or a resumption. One without a failure may be that to a pause before
    // them.
    facts->release_failed = facts->release_asked;
    facts->resume_failed = facts->resume_asked;
    facts->release_asked = facts->resume_asked = false;
  }
}

void TellEnded(const RunEnd& end, RunFacts* facts) {
  facts->phase = RunFacts::Phase::kEnded;
  facts->end = end;
}

}  // namespace megatrain

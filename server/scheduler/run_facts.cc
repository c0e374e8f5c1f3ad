#include "server/scheduler/run_facts.h"

#include <algorithm>
#include <variant>

namespace megatrain {
namespace {

void ApplyPause(const TrainingPause& pause, RunFacts* facts) {
  facts->phase = RunFacts::Phase::kPaused;
  facts->pause = pause;
  facts->pause_asked = false;
  if (pause.status.ok()) return;
  // The answer to a release or a resumption. One without a failure may be that to a pause before
  // them.
  facts->release_failed = facts->release_asked;
  facts->resume_failed = facts->resume_asked;
  facts->release_asked = facts->resume_asked = false;
}

}  // namespace

void Apply(const JobRunEvent& event, RunFacts* facts) {
  std::visit(Overloaded{[&](const StepsBegin& begin) {
                          facts->phase = RunFacts::Phase::kTraining;
                          facts->first_step = begin.first_step;
                          facts->total_steps = begin.total_steps;
                          facts->steps_unstored = true;
                          facts->step = begin.first_step - 1;
                          facts->pause = TrainingPause{};
                          facts->pause_asked = facts->resume_asked = false;
                        },
                        [&](const StepRecord& record) { facts->step = record.step; },
                        [&](const CheckpointSaved& saved) {
                          facts->checkpoint_step = std::max(facts->checkpoint_step, saved.step);
                        },
                        [&](const TrainingPause& pause) { ApplyPause(pause, facts); },
                        [&](const RunEnd& end) {
                          facts->phase = RunFacts::Phase::kEnded;
                          facts->end = end;
                        },
                        [](const auto&) {}},
             event);
}

}  // namespace megatrain

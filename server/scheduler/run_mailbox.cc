#include "server/scheduler/run_mailbox.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

namespace megatrain {
namespace {

// The mean forgets: a step counts for a tenth.
constexpr double kPaceShare = 0.1;

// Nothing that the scheduler does follows from these.
bool IsOfNoConcern(const JobRunEvent& event) {
  return std::holds_alternative<RunMessage>(event) ||
         std::holds_alternative<TrainingActivity>(event) ||
         std::holds_alternative<SampledAnswer>(event) ||
         std::holds_alternative<BeforeCheckpoint>(event) ||
         std::holds_alternative<CheckpointFailed>(event);
}

}  // namespace

void RunMailbox::Tell(const RunRequest& run, const JobRunEvent& event) {
  if (IsOfNoConcern(event)) return;
  MutexLock lock(&mutex_);
  if (const auto* const record = std::get_if<StepRecord>(&event)) {
    const double seconds = record->step_seconds;
    double& pace = pace_[run.job_id];
    pace = pace == 0 ? seconds : (1 - kPaceShare) * pace + kPaceShare * seconds;
    mail_.progress[run.job_id] = {*record, pace};
  } else {
    if (std::holds_alternative<RunEnd>(event)) pace_.erase(run.job_id);
    mail_.reports.push_back({run.job_id, event});
    woken_ = true;
  }
  changed_.NotifyAll();
}

void RunMailbox::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  changed_.NotifyAll();
}

RunMailbox::Mail RunMailbox::Take() {
  MutexLock lock(&mutex_);
  woken_ = false;
  return std::exchange(mail_, Mail{});
}

void RunMailbox::Wait(double seconds, double step_seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  MutexLock lock(&mutex_);
  for (;;) {
    if (woken_) return;
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    const double end = mail_.progress.empty() ? seconds : std::min(seconds, step_seconds);
    if (passed >= end) return;
    changed_.WaitFor(&mutex_, end - passed);
  }
}

}  // namespace megatrain

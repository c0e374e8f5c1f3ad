#include "server/worker/watchdog.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "engine/base/thread_name.h"

namespace megatrain {

Watchdog::Watchdog(const WatchdogOptions& options,
                   std::function<void(const std::string& why)> stalled)
    : options_(options),
      stalled_(std::move(stalled)),
      looked_(Now()),
      thread_([this] { Poll(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

double Watchdog::Now() const {
  if (options_.now) return options_.now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Watchdog::Advance() {
  advanced_ = Now();
  told_ = false;
}

void Watchdog::Enter(TrainingPhase phase, const std::string& what) {
  MutexLock lock(&mutex_);
  phase_ = phase;
  what_ = what;
  Advance();
}

void Watchdog::Alive() {
  MutexLock lock(&mutex_);
  Advance();
}

void Watchdog::StepDone(int64_t step, double step_seconds) {
  MutexLock lock(&mutex_);
  step_ = step;
  step_seconds_[static_cast<size_t>(steps_++ % kStepsRemembered)] = step_seconds;
  Advance();
}

void Watchdog::Follow(const RunEvent& event) {
  std::visit(
      Overloaded{[this](const TrainingActivity& activity) { Enter(activity.phase, activity.what); },
                 [this](const StepsBegin& begin) {
                   MutexLock lock(&mutex_);
                   step_ = begin.first_step - 1;
                   Advance();
                 },
                 [this](const StepRecord& record) { StepDone(record.step, record.step_seconds); },
                 [](const auto&) {}},
      event);
}

void Watchdog::SetResting(bool resting) {
  MutexLock lock(&mutex_);
  resting_ = resting;
  Advance();
}

double Watchdog::Limit() const {
  if (resting_) return -1;
  switch (phase_) {
    case TrainingPhase::kPaused:
      return -1;
    case TrainingPhase::kPreparing:
      return options_.preparing_seconds;
    case TrainingPhase::kSaving:
      return options_.saving_seconds;
    case TrainingPhase::kRunning:
      break;
  }
  if (steps_ == 0) return options_.first_step_seconds;
  const double longest = *std::max_element(step_seconds_.begin(), step_seconds_.end());
  return std::max(options_.step_seconds_min, options_.step_factor * longest);
}

double Watchdog::limit_seconds() const {
  MutexLock lock(&mutex_);
  return Limit();
}

void Watchdog::Check() {
  const double now = Now();
  std::string why;
  {
    MutexLock lock(&mutex_);
    if (now - std::exchange(looked_, now) > options_.stopped_seconds) advanced_ = now;
    const double limit = Limit();
    const double silent = now - advanced_;
    double left = limit < 0 ? std::numeric_limits<double>::infinity() : limit - silent;
    if (options_.share) left = options_.share(left);
    if (limit < 0 || left >= 0 || told_) return;
    told_ = true;
    const std::string what = !what_.empty()                        ? what_
                             : phase_ == TrainingPhase::kPreparing ? "preparing"
                             : phase_ == TrainingPhase::kSaving    ? "saving"
                                                                   : "training";
    why = absl::StrFormat("%s has not advanced for %.0f s (at most %.0f s are expected)", what,
                          silent, limit);
    if (steps_ > 0 || phase_ == TrainingPhase::kRunning) {
      absl::StrAppendFormat(&why, " after step %d", step_);
    }
  }
  stalled_(why);
}

void Watchdog::Poll() {
  NameThisThread("watchdog");
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (!ending_) changed_.WaitFor(&mutex_, options_.poll_seconds);
      if (ending_) return;
    }
    Check();
  }
}

}  // namespace megatrain

#include "engine/run/run_context.h"

#include <utility>

namespace megatrain {

absl::Status RunContext::GoOn() const {
  if (options_.alive) options_.alive();
  if (control_.cancel_requested() || (preparing_ && AskedToEnd().has_value())) {
    return absl::CancelledError("abandoned");
  }
  return absl::OkStatus();
}

Ending RunContext::AskedToEnd() const {
  if (control_.cancel_requested()) return TrainingOutcome::kCancelled;
  if (control_.stop_requested()) return TrainingOutcome::kInterrupted;
  if (control_.release_requested()) return TrainingOutcome::kReleased;
  return std::nullopt;
}

void RunContext::PauseFor(TrainingPause why) {
  own_pause_ = std::move(why);
  control_.Pause();
}

TrainingPause RunContext::TakeOwnPause() {
  return std::exchange(own_pause_, std::nullopt).value_or(TrainingPause());
}

void RunContext::Report(TrainingPhase phase, const std::string& what, double fraction) {
  phase_ = phase;
  Tell(TrainingActivity{phase, what, fraction});
}

}  // namespace megatrain

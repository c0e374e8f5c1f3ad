#include "engine/run/start/run_context.h"

#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace megatrain {

absl::Status RunContext::CheckNotAbandoned() const {
  Alive();
  if (control_.cancel_requested() || (preparing_ && AskedToEnd().has_value())) {
    return absl::CancelledError("abandoned");
  }
  return absl::OkStatus();
}

Ending RunContext::AskedToEnd() const {
  // While preparing, processes do not wait for each other's requests: one that ends, ends all.
  const TrainingControl& control = preparing_ ? own_control_ : control_;
  if (control.cancel_requested()) return TrainingOutcome::kCancelled;
  if (control.stop_requested()) return TrainingOutcome::kInterrupted;
  if (control.release_requested()) return TrainingOutcome::kReleased;
  return std::nullopt;
}

absl::Status RunContext::ShareRequests() {
  if (processes() == nullptr) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(
      const std::vector<double> asked,
      process_communicator()->GatherValues({own_control_.stop_requested() ? 1.0 : 0.0,
                                            own_control_.TakeCheckpoint() ? 1.0 : 0.0,
                                            own_control_.cancel_requested() ? 1.0 : 0.0}));
  for (size_t i = 0; i < asked.size(); i += 3) {
    if (asked[i] > 0) control_.Stop();
    if (asked[i + 1] > 0) control_.Checkpoint();
    if (asked[i + 2] > 0) control_.Cancel();
  }
  return absl::OkStatus();
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

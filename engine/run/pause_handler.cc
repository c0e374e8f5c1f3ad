#include "engine/run/pause_handler.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/device/device_lost.h"

namespace megatrain {

absl::StatusOr<Ending> PauseHandler::Honour() { return HonourRequests(/*for_steps=*/true); }

absl::StatusOr<Ending> PauseHandler::HonourRequests(bool for_steps) {
  TrainingControl& control = run_.control();
  while (true) {
    if (control.cancel_requested()) return Ending(TrainingOutcome::kCancelled);
    if (control.stop_requested()) {
      MT_RETURN_IF_ERROR(saver_.EnsureSaved());
      return Ending(TrainingOutcome::kInterrupted);
    }
    if (control.release_requested()) {
      const absl::Status status = saver_.EnsureSaved();
      if (status.ok()) return Ending(TrainingOutcome::kReleased);
      // The memory is all that holds the state: it is kept.
      control.TakeRelease();
      saver_.ReportFailure(progress_.done, status);
      run_.PauseFor(saver_.PauseForCheckpoint(status));
    } else if (control.TakeCheckpoint()) {
      saver_.AnswerRequest();
    } else if (control.pause_requested()) {
      StandStill(/*wake_for_checkpoint=*/true);
    } else if (saver_.TakeRetry()) {
      saver_.TrySave();
    } else {
      if (for_steps) {
        MT_RETURN_IF_ERROR(RetakeDevice());
      } else {
        TellGoingOn();
      }
      if (!control.pause_requested()) return Ending();
    }
  }
}

absl::Status PauseHandler::HonourAmidStep() {
  ends_without_device_ = false;  // a release that could not save went on
  const auto paused = [this] {
    return run_.control().pause_requested() && !run_.AskedToEnd().has_value();
  };
  while (paused() || (!trainer_.holds_device() && !run_.AskedToEnd().has_value())) {
    if (paused()) {
      StandStill(/*wake_for_checkpoint=*/false);
    } else {
      MT_RETURN_IF_ERROR(RetakeDevice());
    }
  }
  MT_RETURN_IF_ERROR(run_.CheckNotAbandoned());
  if (trainer_.holds_device()) return absl::OkStatus();
  // Stop and Release wait for the step's record, which needs the device.
  const absl::Status status = trainer_.TakeDevice();
  ends_without_device_ = !status.ok() && !IsDeviceLost(status);
  return status;
}

absl::StatusOr<Ending> PauseHandler::WriteOrWait(int64_t bytes, const std::string& directory,
                                                 absl::FunctionRef<absl::Status()> write) {
  while (true) {
    const absl::Status status = write();
    if (status.ok()) return Ending();
    if (!IsDiskFull(status) || !run_.options().pause_on_full_disk) return status;
    run_.Say(std::string(status.message()));
    run_.PauseFor({status, directory, bytes});
    MT_ASSIGN_OR_RETURN(const Ending ending, HonourRequests(/*for_steps=*/false));
    if (ending.has_value()) return ending;
  }
}

void PauseHandler::StandStill(bool wake_for_checkpoint) {
  if (trainer_.holds_device()) trainer_.ReleaseDevice();
  if (!standing_ || run_.has_own_pause()) {
    standing_ = true;
    const TrainingPause why = run_.TakeOwnPause();
    run_.Report(TrainingPhase::kPaused);
    run_.Tell(why);
  }
  // A save that was under way needs no device.
  saver_.EndCommitted();
  if (run_.has_own_pause()) return;  // to be told first
  run_.control().WaitWhilePaused(wake_for_checkpoint);
}

absl::Status PauseHandler::RetakeDevice() {
  if (!trainer_.holds_device()) {
    const absl::Status status = trainer_.TakeDevice();
    if (IsDeviceLost(status)) return status;  // waiting does not bring it back
    if (!status.ok()) {
      run_.PauseFor({status, "", 0});
      return absl::OkStatus();
    }
  }
  TellGoingOn();
  return absl::OkStatus();
}

void PauseHandler::TellGoingOn() {
  (void)run_.TakeOwnPause();  // of a pause that was withdrawn meanwhile
  // A pause that was withdrawn before it took effect ends in the same way.
  const bool noticed = run_.control().TakePauseNotice();
  if (!std::exchange(standing_, false) && !noticed) return;
  run_.Report(TrainingPhase::kRunning);
  run_.Tell(StepsBegin{progress_.next_step, total_steps_});
}

}  // namespace megatrain

// What TrainingRun does when it is told to pause, save or end while no step is in flight.
#include <utility>

#include "engine/base/status.h"
#include "engine/device/device_lost.h"
#include "engine/run/training_run.h"

namespace megatrain {

absl::StatusOr<TrainingRun::Ending> TrainingRun::Honour() {
  while (true) {
    if (control_.cancel_requested()) return Ending(TrainingOutcome::kCancelled);
    if (control_.stop_requested()) {
      MT_RETURN_IF_ERROR(SaveNow());
      return Ending(TrainingOutcome::kInterrupted);
    }
    if (control_.release_requested()) {
      const absl::Status status = SaveNow();
      if (status.ok()) return Ending(TrainingOutcome::kReleased);
      // The memory is all that holds the state: it is kept.
      control_.TakeRelease();
      NoteFailedSave(done_, status);
      PauseFor({status, spec_.checkpoint.directory, CheckpointBytes()});
    } else if (control_.TakeCheckpoint()) {
      AnswerCheckpointRequest();
    } else if (control_.pause_requested()) {
      StandStill(/*wake_for_checkpoint=*/true);
    } else if (std::exchange(retry_save_, false)) {
      const absl::Status status = SaveNow();
      if (!status.ok()) NoteFailedSave(done_, status);
    } else {
      MT_RETURN_IF_ERROR(GoOnAfterPause());
      if (!control_.pause_requested()) return Ending();
    }
  }
}

absl::Status TrainingRun::HonourAmidStep() {
  while (control_.pause_requested() && !AskedToEnd().has_value()) {
    StandStill(/*wake_for_checkpoint=*/false);
    if (!control_.pause_requested() && !AskedToEnd().has_value()) {
      MT_RETURN_IF_ERROR(GoOnAfterPause());
    }
  }
  MT_RETURN_IF_ERROR(GoOn());
  // Stop and Release wait for the step's record, which needs the device.
  return trainer_->holds_device() ? absl::OkStatus() : trainer_->TakeDevice();
}

void TrainingRun::PauseFor(TrainingPause why) {
  own_pause_ = std::move(why);
  control_.Pause();
}

void TrainingRun::StandStill(bool wake_for_checkpoint) {
  if (trainer_->holds_device()) trainer_->ReleaseDevice();
  if (!standing_ || own_pause_.has_value()) {
    standing_ = true;
    const TrainingPause why = std::exchange(own_pause_, std::nullopt).value_or(TrainingPause());
    Report(TrainingPhase::kPaused);
    Tell(why);
  }
  // A save that was under way needs no device.
  if (save_ != nullptr && saving_committed_) {
    const absl::Status status = EndSave();
    if (!status.ok()) NoteFailedSave(saving_step_, status);
    if (own_pause_.has_value()) return;  // to be told first
  }
  control_.WaitWhilePaused(wake_for_checkpoint);
}

absl::Status TrainingRun::GoOnAfterPause() {
  if (!trainer_->holds_device()) {
    const absl::Status status = trainer_->TakeDevice();
    if (IsDeviceLost(status)) return status;  // waiting does not bring it back
    if (!status.ok()) {
      PauseFor({status, "", 0});
      return absl::OkStatus();
    }
  }
  // A pause that was withdrawn before it took effect ends in the same way.
  const bool noticed = control_.TakePauseNotice();
  if (!std::exchange(standing_, false) && !noticed) return absl::OkStatus();
  Report(TrainingPhase::kRunning);
  Tell(StepsBegin{next_step_, total_steps_});
  return absl::OkStatus();
}

}  // namespace megatrain

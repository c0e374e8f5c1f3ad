// A run's checkpoints and its output: when a save begins, becomes a checkpoint, ends or fails.
//
// A save goes through three moments. It begins behind a submitted step: the io lane then writes
// tiles beside the steps that follow. It is committed when the record of its step is out, so that a
// resumed run finds the records of all its steps. It ends when the directory is verified and has
// its name.
//
// A failed save is told and the checkpoint before is kept: training goes on. Where a full disk is
// to be waited for (TrainingOptions::pause_on_full_disk) the run asks for a pause, and the save is
// tried again after it. The last checkpoint and the output are not done without: their errors go to
// the caller, and pause_handler.h waits for the disk.
//
// Invariant: one save at a time; a new one waits for the one before.
#ifndef MEGATRAIN_ENGINE_RUN_CHECKPOINT_SAVER_H_
#define MEGATRAIN_ENGINE_RUN_CHECKPOINT_SAVER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "engine/checkpoint/retention.h"
#include "engine/run/prepare_run.h"
#include "engine/run/run_context.h"
#include "engine/run/trainer.h"

namespace megatrain {

class CheckpointSaver {
 public:
  // All arguments must outlive this. What the trainer holds of a save in flight outlives it.
  CheckpointSaver(RunContext& run, const PreparedRun& prepared, const RunProgress& progress,
                  Trainer& trainer);

  bool Due(int64_t step) const;
  // Whether `step` is due while a save is in flight that cannot end, as its record is not out yet.
  bool MustWait(int64_t step) const;
  // Whether the save in flight reads what `step` makes.
  bool Saves(int64_t step) const;

  // Begins to save the state after `step`, the last one submitted. Waits for the save before: a
  // slow disk stalls training here. An error is a step's (Aborted).
  absl::Status Begin(int64_t step);
  // Commits the save of the last collected step, whose record is out, and ends a save that is
  // written. An error is a step's (Aborted).
  absl::Status AfterStep();
  // Waits for a save that is committed.
  void EndCommitted();
  // Once it returns OK there is a checkpoint of the last collected step. REQUIRES: no step is in
  // flight.
  absl::Status SaveNow();
  // SaveNow whose failure is told, for a request or after a pause. REQUIRES: no step is in flight.
  void AnswerRequest();
  void TrySave();
  // Whether a save met a full disk since this was asked last, and is to be tried again.
  bool TakeRetry() { return std::exchange(retry_, false); }
  // Tells that the checkpoint of `step` could not be written.
  void NoteFailure(int64_t step, const absl::Status& status);

  // Writes the model to output.directory. REQUIRES: no step is in flight.
  absl::Status Export();

  // A pause for want of what `status` says, with the bytes that a checkpoint takes.
  TrainingPause PauseForCheckpoint(const absl::Status& status) const;

 private:
  struct Save;

  // As Begin, but its own failure goes to the caller.
  absl::Status Start(int64_t step);
  void Commit();
  // Waits for the save in flight.
  absl::Status End();
  absl::Status EndAndTell();

  RunContext& run_;
  const PreparedRun& prepared_;
  const RunProgress& progress_;
  Trainer& trainer_;
  Retention retention_;
  std::shared_ptr<Save> save_;  // in flight
  CheckpointSaved saved_;       // the newest checkpoint
  bool retry_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_CHECKPOINT_SAVER_H_

// CheckpointSaver saves a run's checkpoints and writes its output.
//
// A save has three stages. It begins after its step is submitted, or left out by
// training.skip_steps. From then on the io lane writes tiles while later steps run. It is committed
// when the record of its step has been reported, so that a resumed run finds the records of all its
// steps. It ends when the directory is verified and renamed to its final name.
//
// Several processes write one checkpoint together (checkpoint_writer.h), so that all of them must
// make the calls that save.
//
// A failed save is reported as CheckpointFailed, the checkpoint before is kept, and training goes
// on. With TrainingOptions::pause_on_full_disk the saver asks for a pause after a full disk, and
// the save is tried again after the pause. A run cannot do without its last checkpoint and its
// output. So their errors are returned, and PauseHandler waits until the disk has room.
//
// A save may also end with the error of a training step that kept it from going on. That is then
// returned, and not reported as the save's.
//
// Invariant: at most one save is in flight. A new one waits for the one before.
//
// Thread safety: the training thread calls all methods.
#ifndef MEGATRAIN_ENGINE_RUN_CHECKPOINT_SAVER_H_
#define MEGATRAIN_ENGINE_RUN_CHECKPOINT_SAVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/checkpoint/retention.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/comm/communicator.h"
#include "engine/hf/hf_format.h"
#include "engine/run/start/prepare_run.h"
#include "engine/run/start/run_context.h"
#include "engine/trainer/trainer.h"

namespace megatrain {

class CheckpointSaver {
 public:
  // All arguments must outlive this. A save in flight stays with the trainer when this is
  // destroyed, so `run` and `prepared` must outlive the trainer too.
  CheckpointSaver(RunContext& run, const PreparedRun& prepared, const RunProgress& progress,
                  Trainer& trainer);

  // Saves beside the steps.

  // Returns true if the job wants a checkpoint after `step`, as always after the last one, which
  // EnsureSaved saves.
  bool Due(int64_t step) const;
  // Returns true if `step` is due but must not be submitted yet, because the save in flight is not
  // committed and so cannot end.
  bool MustWait(int64_t step) const;
  // Returns true if the save in flight reads the state after `step`.
  bool IsSaving(int64_t step) const;

  // Begins to save the state after `step`. Waits for the save before, so a slow disk stalls
  // training here. Returns the error of a training step. A failure of a save is reported, and the
  // result is OK. REQUIRES: `step` is the last one that was submitted or left out, and
  // !MustWait(step).
  absl::Status Begin(int64_t step);
  // If the job keeps the best and the evaluation of `step` is better than that of the checkpoint
  // which is kept, begins to save the state after `step`, unless a save of it is under way or it is
  // the last step. Returns what Begin returns, or OK. REQUIRES: no step is in flight, and the
  // record of `step` is not reported yet.
  absl::Status SaveBest(int64_t step);
  // Must be called after each record is reported, and after each step that is left out. Commits the
  // save of the last collected step, and ends a committed save that is written, without waiting.
  // Returns the error of a training step. A failure of a save is reported.
  absl::Status AfterStep();
  // Waits for the save in flight and ends it, if it is committed. Reports its failure. REQUIRES: no
  // step is in flight.
  void EndCommitted();

  // Saves while no step is in flight.

  // Ensures that there is a checkpoint of the step RunProgress::done, unless that is 0. Returns the
  // error if it cannot be written. REQUIRES: no step is in flight.
  absl::Status EnsureSaved();
  // Answers TrainingControl::Checkpoint: saves as TrySave does, or reports the checkpoint that is
  // there already. Reports CheckpointFailed if no step was made yet. REQUIRES: no step is in
  // flight.
  void AnswerRequest();
  // Calls EnsureSaved and reports its failure. REQUIRES: no step is in flight.
  void TrySave();
  // Returns true if a save has met a full disk since the last call and must be tried again.
  bool TakeRetry() { return std::exchange(retry_, false); }
  // Reports that the checkpoint of `step` could not be written. Asks for a pause and a retry if the
  // disk is full and the options say so. Does nothing once the run is cancelled, or the exchanges
  // between its processes have failed: the run's own error then says why.
  void ReportFailure(int64_t step, const absl::Status& status);

  // The end of the run.

  // Saves what can be saved after a step has failed: finishes a save of an earlier step that is
  // under way and, if the step has changed nothing, saves the state before it. Reports failures.
  // Returns a clause for people, such as "the run can go on from DIRECTORY". REQUIRES: no step is
  // submitted any more.
  std::string SaveAfterFailedStep();
  // Reports where the checkpoint of the lowest evaluation loss is, if the job keeps it and it is
  // not the last one.
  void TellBest() const;
  // Writes the model to output.directory, from the tiles or, if several ranks share these, from the
  // newest checkpoint. Of several processes the first one does it. All must call this, and all
  // return the first one's error. Returns the errors of ExportHfDirectory, ExportCheckpoint and the
  // communicator. REQUIRES: no step is in flight, EnsureSaved has succeeded, and output.directory
  // is given.
  absl::Status Export();

  // Returns a pause because of `status`, with the bytes that a checkpoint takes.
  TrainingPause PauseForCheckpoint(const absl::Status& status) const;

 private:
  struct Save;

  // The model's files besides the weights, with the chat template that the data was made with.
  HfSideFiles SideFiles() const;
  // Sets what `save` says of evaluations, and which checkpoint it keeps as the best.
  void ChooseBest(Save& save) const;
  // Returns true if the job keeps the best, and `step` has just been evaluated as better than what
  // is kept or is about to be.
  bool IsBetterThanKept(int64_t step) const;
  // Finishes the save under way although no lane runs any more. The tiles that it has not taken yet
  // have not changed since its step.
  absl::Status FinishInterrupted();
  // Writes the state that the tiles hold, that after the last collected step.
  absl::Status SaveTiles();
  // Reports a checkpoint that was written.
  void NoteSaved(const Save& save);
  // Does what Begin does, but returns the new save's failure.
  absl::Status Start(int64_t step);
  void Commit();
  // Waits for the save in flight and returns its failure or a step's.
  absl::Status End();
  // Calls End and reports the save's failure. Returns a step's.
  absl::Status EndAndTell();
  // Returns true for the error of a step that ended a save.
  bool IsOfStep(const absl::Status& status) const { return !status.ok() && status == step_error_; }

  RunContext& run_;
  const PreparedRun& prepared_;
  const RunProgress& progress_;
  Trainer& trainer_;
  DirectoryRanks ranks_;              // as in CheckpointWriter::Begin
  Communicator* const communicator_;  // that of ranks_
  Retention retention_;
  double kept_loss_;            // the eval_loss of step retention_.best
  std::shared_ptr<Save> save_;  // in flight
  CheckpointSaved saved_;       // the newest checkpoint
  absl::Status step_error_;     // which ended a save
  bool retry_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_CHECKPOINT_SAVER_H_

// TrainingLoop makes the steps of a run. It submits batches, collects records and evaluates. In
// between it calls the CheckpointSaver and the PauseHandler.
//
// Thread safety: the training thread calls all methods.
//
// Invariants:
// - Steps are submitted and collected in order, and at most two are in flight.
// - No step is submitted after one whose evaluation needs its weights, or while a request waits.
// - A step that was given up is submitted again with the same batch before any other.
#ifndef MEGATRAIN_ENGINE_RUN_TRAINING_LOOP_H_
#define MEGATRAIN_ENGINE_RUN_TRAINING_LOOP_H_

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/sequences/batch.h"
#include "engine/data/sequences/batch_loader.h"
#include "engine/run/checkpoint_saver.h"
#include "engine/run/pause_handler.h"
#include "engine/run/start/prepare_run.h"
#include "engine/run/start/run_context.h"
#include "engine/trainer/trainer.h"

namespace megatrain {

// The parts of a run that the loop works with. All must outlive it.
struct RunParts {
  RunContext& run;
  const PreparedRun& prepared;
  RunProgress& progress;
  Trainer& trainer;
  CheckpointSaver& saver;
  PauseHandler& pause;
};

class TrainingLoop {
 public:
  explicit TrainingLoop(const RunParts& parts)
      : p_(parts),
        loader_(p_.prepared.dataset.get(), p_.run.spec(), p_.prepared.first_step(),
                p_.prepared.start.data_position, p_.prepared.total_steps, /*ahead=*/2,
                p_.prepared.reference.get()) {}

  // Makes the steps that are left. Returns nullopt when the last one is collected, which may be one
  // that training.stop_after_worse makes the last (RunProgress::stopped_early). Returns the outcome
  // if a request ended the run before that. The last step's checkpoint is left to the caller.
  // Returns the errors of RunTraining. After a cancel or an error steps may still be in flight; the
  // trainer's destructor waits for those that run. REQUIRES: it is called once, with the model
  // loaded, `progress` at prepared.start, and StepsBegin reported.
  absl::StatusOr<Ending> Run();

 private:
  // Submits steps while they may follow each other.
  absl::Status SubmitSteps();
  absl::Status SubmitNext();
  // Waits for the oldest step in flight, as Trainer::AwaitStep. Says that the run goes on as
  // operations of its first step end.
  bool AwaitOldest(absl::FunctionRef<bool()> interrupted);
  absl::Status CollectOne();
  // Returns true if the job leaves the batch of `step` out.
  bool Skips(int64_t step) const;
  // Makes no update for the next step. REQUIRES: Skips() it, and no step is in flight.
  absl::Status SkipNext();
  // Gives up steps that have hardly begun, so that a request need not wait for them. They are made
  // again later.
  void WithdrawSteps();
  // Returns the last step of the job that updates anything; 0 if none does.
  int64_t LastUpdate() const;
  bool EvaluationDue(int64_t step) const;
  // Measures the loss over all evaluation data and that of each named set. Adds them to
  // `record` and to the run's evaluations, and saves the best one.
  absl::Status Evaluate(StepRecord& record);
  // Answers training.sample_prompts and tells the answers.
  absl::Status AnswerSamplePrompts(int64_t step);

  const RunParts p_;
  BatchLoader loader_;
  std::deque<std::shared_ptr<const Batch>> submitted_;  // of the steps in flight
  std::deque<std::shared_ptr<const Batch>> withdrawn_;  // to be submitted again, in order
  bool barrier_ = false;       // nothing is submitted before all that is in flight is collected
  int64_t given_up_step_ = 0;  // the last one whose forward pass was given up
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_TRAINING_LOOP_H_

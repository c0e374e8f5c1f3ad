// One job from its files to its end: data, resume, the loop over steps, evaluation, checkpoints,
// export. What is asked from outside is honoured between steps; what takes long beside steps can be
// abandoned in its middle.
#ifndef MEGATRAIN_ENGINE_RUN_TRAINING_RUN_H_
#define MEGATRAIN_ENGINE_RUN_TRAINING_RUN_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/data/sequences/batch_loader.h"
#include "engine/engine.h"
#include "engine/host/session.h"
#include "engine/memory/host_pool.h"
#include "engine/model/model_layout.h"
#include "engine/plan/memory_plan.h"
#include "engine/run/checkpoint_job.h"
#include "engine/run/trainer.h"

namespace megatrain {

class TrainingRun {
 public:
  // All arguments must outlive the run.
  TrainingRun(EngineHost& host, const JobSpec& spec, const TrainingOptions& options,
              TrainingControl* control, const RunSink& tell)
      : host_(host),
        spec_(spec),
        options_(options),
        control_(*control),
        tell_(tell),
        files_(options.files != nullptr ? options.files : host.files(), [this] { return GoOn(); }) {
  }

  absl::StatusOr<TrainingOutcome> Run();

 private:
  // Why a run ends before its last step.
  using Ending = std::optional<TrainingOutcome>;

  // training_run.cc: from files to the first step.
  absl::StatusOr<TrainingOutcome> PrepareAndTrain();
  void Tell(const RunEvent& event) const {
    if (tell_) tell_(event);
  }
  void Say(const std::string& line) const;
  void Report(TrainingPhase phase, const std::string& what = "", double fraction = -1) const;
  // Cancelled when what is under way is to be abandoned: by Cancel, and before the first step by
  // Stop and Release too. From any thread; calls TrainingOptions::alive.
  absl::Status GoOn() const;
  // What the run was told to end as, if it was.
  Ending AskedToEnd() const;
  absl::Status Plan();
  // Data that is damaged or changes under the run is the input's fault, not a checkpoint's.
  static absl::Status AsInputError(const absl::Status& status);
  absl::Status OpenData();
  absl::Status ChooseStart();
  absl::Status FindCheckpoint();
  absl::Status CheckNewer(const CheckpointState& saved);
  absl::Status LoadState();
  CheckpointState State(int64_t step) const;

  // training_loop.cc: steps, evaluation, saves, pauses.
  absl::StatusOr<TrainingOutcome> Loop();
  absl::Status SubmitNext(BatchLoader& loader);
  absl::Status CollectOne();
  // A request need not wait for steps that have hardly begun: they are made again later.
  void WithdrawSteps();
  bool EvaluationDue(int64_t step) const;
  bool SaveDue(int64_t step) const;
  bool SaveInTheWay() const;
  // No step may be submitted behind this one before it is collected.
  bool Barrier(int64_t step) const { return EvaluationDue(step) || step == total_steps_; }
  absl::StatusOr<double> Evaluate();
  int64_t CheckpointBytes() const;
  absl::Status BeginSave(int64_t step);
  void CommitSave();
  // Waits for the save in flight.
  absl::Status EndSave();
  absl::Status SaveNow();
  // Tells the failure; a full disk is kept to be waited for, if so told.
  void NoteFailedSave(int64_t step, const absl::Status& status);
  void AnswerCheckpointRequest();
  // `write` until it succeeds, standing still while the disk is full.
  absl::StatusOr<Ending> WriteOrWait(int64_t bytes, const std::string& directory,
                                     const std::function<absl::Status()>& write);
  absl::Status Export();

  // training_pause.cc. REQUIRES: no step is in flight.
  // Does what was asked for; returns when steps may go on, or how the run ends.
  absl::StatusOr<Ending> Honour();
  // The same in the midst of a step, whose record is not out: only a pause in place and Cancel are
  // honoured.
  absl::Status HonourAmidStep();
  // Asks for a pause on the run's own account.
  void PauseFor(TrainingPause why);
  // Gives the device back and waits until the pause ends or something else is to be done.
  void StandStill(bool wake_for_checkpoint);
  // With the device, or asks for a pause if that cannot be had. An error: the device is lost.
  absl::Status GoOnAfterPause();

  EngineHost& host_;
  const JobSpec& spec_;
  const TrainingOptions& options_;
  TrainingControl& control_;
  const RunSink& tell_;
  WatchedFileSystem files_;

  std::atomic<bool> preparing_{true};
  std::shared_ptr<const Session> session_;
  ModelLayout layout_;
  MemoryPlan plan_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<FileLock> lock_;         // on checkpoint.directory
  std::optional<std::string> checkpoint_;  // to go on from
  std::string run_name_;
  Retention retention_;
  int64_t first_step_ = 1;
  int64_t total_steps_ = 0;
  int64_t next_step_ = 1;                // to submit
  int64_t given_up_step_ = 0;            // the last one whose forward pass was given up
  int64_t done_ = 0;                     // last collected
  std::shared_ptr<CheckpointJob> save_;  // in flight
  int64_t saving_step_ = 0;              // its
  bool saving_committed_ = false;
  absl::Time saving_since_;
  int64_t saved_step_ = 0;        // of the newest checkpoint
  double saved_seconds_ = 0;      // that it took
  int64_t total_tokens_ = 0;      // of collected steps
  int64_t submitted_tokens_ = 0;  // of submitted ones
  std::string saved_directory_;
  std::deque<std::shared_ptr<const Batch>> submitted_;  // of the steps in flight
  std::deque<std::shared_ptr<const Batch>> withdrawn_;  // to be submitted again, in order
  std::optional<TrainingPause> own_pause_;              // why it pauses by itself, until it is told
  bool standing_ = false;                               // a pause was told, and its end was not
  bool retry_save_ = false;                             // a save met a full disk
  std::unique_ptr<Trainer> trainer_;                    // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_TRAINING_RUN_H_

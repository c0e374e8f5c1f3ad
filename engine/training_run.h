// One job from its files to its end: data, resume, the loop over steps, evaluation, checkpoints,
// export. What is asked from outside (stop, save) is honoured between steps.
#ifndef MEGATRAIN_ENGINE_TRAINING_RUN_H_
#define MEGATRAIN_ENGINE_TRAINING_RUN_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/directory_lock.h"
#include "engine/data/batch_loader.h"
#include "engine/engine.h"
#include "engine/memory/host_pool.h"
#include "engine/model/model_layout.h"
#include "engine/pipeline/memory_plan.h"
#include "engine/pipeline/trainer.h"
#include "engine/session.h"

namespace megatrain {

class TrainingRun {
 public:
  // All arguments must outlive the run.
  TrainingRun(const JobSpec& spec, const TrainingOptions& options, TrainingControl* control,
              const TrainingObserver& observer)
      : spec_(spec), options_(options), control_(*control), observer_(observer) {}

  absl::StatusOr<TrainingOutcome> Run();

 private:
  void Say(const std::string& line) const;
  absl::Status Plan();
  absl::Status OpenData();
  absl::Status ChooseStart();
  absl::Status LoadState();
  absl::StatusOr<TrainingOutcome> Loop();
  absl::Status SubmitNext(BatchLoader& loader);
  bool EvaluationDue(int64_t step) const;
  bool SaveDue(int64_t step) const;
  bool SaveInTheWay() const;
  // No step may be submitted behind this one before it is collected.
  bool Barrier(int64_t step) const { return EvaluationDue(step) || step == total_steps_; }
  absl::StatusOr<double> Evaluate();
  CheckpointState State(int64_t step) const;
  absl::Status BeginSave(int64_t step);
  absl::Status EndSave(bool must_succeed);
  absl::Status SaveNow(int64_t step);
  absl::Status Export();

  const JobSpec& spec_;
  const TrainingOptions& options_;
  TrainingControl& control_;
  const TrainingObserver& observer_;

  Session session_;
  ModelLayout layout_;
  MemoryPlan plan_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<HostPool> pool_;
  DirectoryLock lock_;                     // on checkpoint.directory
  std::optional<std::string> checkpoint_;  // to go on from
  int64_t first_step_ = 1;
  int64_t total_steps_ = 0;
  int64_t next_step_ = 1;    // to submit
  int64_t saving_step_ = 0;  // of the save in flight
  bool saving_committed_ = false;
  int64_t saved_step_ = 0;            // of the newest checkpoint
  int64_t total_tokens_ = 0;          // of collected steps
  int64_t submitted_tokens_ = 0;      // of submitted ones
  std::unique_ptr<Trainer> trainer_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRAINING_RUN_H_

// From a job's files to its first step: the plan, the data, the checkpoint to go on from, and the
// model's state in host memory.
#ifndef MEGATRAIN_ENGINE_RUN_PREPARE_RUN_H_
#define MEGATRAIN_ENGINE_RUN_PREPARE_RUN_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint_state.h"
#include "engine/data/sequences/batch_loader.h"
#include "engine/host/session.h"
#include "engine/model/model_layout.h"
#include "engine/plan/memory_plan.h"
#include "engine/run/resume_point.h"
#include "engine/run/run_context.h"
#include "engine/run/trainer.h"

namespace megatrain {

// Nothing of it changes while the run lasts.
struct PreparedRun {
  std::shared_ptr<const Session> session;
  ModelLayout layout;  // the plan points to it
  MemoryPlan plan;
  std::unique_ptr<Dataset> dataset;
  int64_t total_steps = 0;
  ResumePoint start;

  int64_t first_step() const { return start.step + 1; }
  // What a checkpoint of `step` says beside its tensors.
  CheckpointState StateAt(const JobSpec& spec, int64_t step, int64_t input_tokens) const;
};

// How far a run has come. The loop over steps writes it; the saver and the pause read it.
struct RunProgress {
  int64_t next_step = 1;         // to submit
  int64_t done = 0;              // the last step collected
  int64_t submitted_tokens = 0;  // of all steps submitted since step 1
  int64_t total_tokens = 0;      // of those collected
};

// Errors are those of RunTraining. Cancelled once the run is asked to end.
absl::StatusOr<std::unique_ptr<const PreparedRun>> PrepareRun(RunContext& run);

// Takes the host's pool and the device, and fills the tiles from the checkpoint, the model or at
// random. `prepared` must outlive the trainer.
absl::StatusOr<std::unique_ptr<Trainer>> LoadTrainer(RunContext& run, const PreparedRun& prepared);

// Turns the status of reading data into the run's: data that is damaged or changes under the run is
// the input's fault, not a checkpoint's.
absl::Status AsInputError(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_PREPARE_RUN_H_

// Prepares a run for its first step: makes the plan, opens the data, chooses the checkpoint to
// resume from, and loads the model's state into host memory.
#ifndef MEGATRAIN_ENGINE_RUN_START_PREPARE_RUN_H_
#define MEGATRAIN_ENGINE_RUN_START_PREPARE_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint_state.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/comm/nccl_api.h"
#include "engine/data/cache/reference_logps.h"
#include "engine/data/sequences/dataset.h"
#include "engine/generation/prompt_encoder.h"
#include "engine/host/session.h"
#include "engine/model/model_layout.h"
#include "engine/plan/memory_plan.h"
#include "engine/run/start/resume_point.h"
#include "engine/run/start/run_context.h"
#include "engine/trainer/rank_parts.h"
#include "engine/trainer/trainer.h"

namespace megatrain {

// The parts of a run that do not change once its model is loaded.
struct PreparedRun {
  std::shared_ptr<const Session> session;
  std::vector<std::unique_ptr<NcclApi>> nccl;  // LoadNcclForRanks
  ModelLayout layout;                          // the plan points to it
  MemoryPlan plan;
  std::string carried_digest;                  // CarriedTensors::digest of a wrapper's directory
  std::shared_ptr<const Tokenizer> tokenizer;  // null if neither data nor prompts need one
  std::unique_ptr<Dataset> dataset;
  std::unique_ptr<ReferenceLogps> reference;  // null if the job has no reference
  std::vector<EncodedPrompt> sample_prompts;  // training.sample_prompts
  DirectoryRanks directory_ranks;  // of checkpoint.directory, over process_communicator()
  std::unique_ptr<FileLock> lock;  // of that directory; null in processes that do not lead
  int64_t total_steps = 0;         // counted from step 1 of the run, not from `start`
  ResumePoint start;

  int64_t first_step() const { return start.step + 1; }
  // Returns the position in the training order, in sequences, after `step`. That step may lie
  // before this run's first.
  int64_t PositionAfter(const JobSpec& spec, int64_t step) const;
  // Returns the state for the checkpoint of `step`, apart from its evaluations. `input_tokens` are
  // those of all steps up to it.
  CheckpointState StateAt(const JobSpec& spec, int64_t step, int64_t input_tokens) const;
};

// The progress of a run. TrainingLoop writes it; CheckpointSaver and PauseHandler read it.
struct RunProgress {
  int64_t next_step = 1;         // the step to submit next
  int64_t done = 0;              // the last step collected or left out
  int64_t submitted_tokens = 0;  // input tokens of all steps submitted since step 1
  int64_t total_tokens = 0;      // input tokens of all steps collected since step 1
  Evaluations evaluations;       // since step 1
  // training.stop_after_worse has ended the steps before the last one.
  bool stopped_early = false;
};

// Makes the plan, locks checkpoint.directory, opens the data and finds the checkpoint to resume
// from. Takes neither host nor device memory for the plan. All processes of a job must call it.
// They compare job file, model, devices, directory, data and checkpoint here, and fail if they
// differ. Returns the errors of RunTraining, and Cancelled once the run is asked to end.
absl::StatusOr<std::unique_ptr<PreparedRun>> PrepareRun(RunContext& run);

// Leases host memory from the host's pool, takes the device, makes prepared.reference if the job
// has a reference, and fills the tiles from the checkpoint, from the model's files or at random. If
// the checkpoint is found damaged, FallBack changes `prepared.start` to an older one, and
// prepared.total_steps is counted anew. `prepared` and the run's host must outlive the trainer. All
// processes of a job must call it. Returns ResourceExhausted if there is not enough memory, for
// which IsPoolBusy (pool_busy.h) is true if other jobs hold it, Cancelled once the run is asked to
// end, and the errors of MakeRankParts, Trainer::Create, PrepareReference, FallBack,
// CheckSameStart, the communicator and of reading the files.
absl::StatusOr<std::unique_ptr<Trainer>> LoadTrainer(RunContext& run, PreparedRun& prepared);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_PREPARE_RUN_H_

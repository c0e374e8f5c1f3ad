// MemoryPlan has the memory that a job takes, computed before anything is allocated, and the
// decisions that depend on it. These are the place of the stash, the micro-batches of a sweep, the
// activations that are kept for the backward pass, the number of weight buffers, the updates on the
// device and what each of several devices loads. If the machine's rates are known, predicted step
// times decide (plan_choice.h). The results of training do not depend on the decisions.
//
// Device bytes are counted by a dry run of engine/pipeline/buffers.h: ReserveDeviceBuffers reserves
// every buffer in an arena without a block. Pool bytes are HostBufferBytes of the same header. The
// process' bytes are an estimate.
#ifndef MEGATRAIN_ENGINE_PLAN_MEMORY_PLAN_H_
#define MEGATRAIN_ENGINE_PLAN_MEMORY_PLAN_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/kernel_sizes.h"
#include "engine/host/memory_budget.h"
#include "engine/job/job_spec.h"
#include "engine/model/model_layout.h"
#include "engine/pipeline/buffers.h"
#include "engine/plan/step_prediction.h"

namespace megatrain {

// The budget of a machine whose memory is not known.
inline constexpr int64_t kUnlimitedBytes = std::numeric_limits<int64_t>::max();

// The largest product of a step's micro-batches and tiles of layers and experts. A schedule has two
// operations or more for each pair, and a plan builds one; this many pairs take hundreds of MiB.
// The limit protects the daemon, which plans job files of any origin before it queues them.
inline constexpr int64_t kStepLayerPassesMax = int64_t{1} << 20;
// The most tokens of a micro-batch. In a model with experts, the tokens times the experts that each
// of them chooses must not exceed it either. Batches and kernels number both in 32 bits. The limit
// also keeps the sizes of a micro-batch's buffers below 2^63 bytes for every model that
// ParseModelDescription takes.
inline constexpr int64_t kMicroBatchTokensMax = std::numeric_limits<int32_t>::max();

// The plan of a job: its decisions, and the bytes and the time that follow from them. It points to
// the layout that it was made for (dimensions.layout).
struct MemoryPlan {
  struct Item {
    std::string name;
    int64_t bytes = 0;
  };
  PipelineDimensions dimensions;
  int64_t parameters = 0;
  // The host memory of each process: the pool by kind, then what the process takes beside it, then
  // the memory of devices that share the host's.
  std::vector<Item> host;
  // The memory of each device: the arena by name, the streams' workspace, the scratch for exchange
  // with GPUs.
  std::vector<Item> device;
  int64_t pool_bytes = 0;
  // Estimate for program, libraries, kernels' scratch, logits of a generation, batches, schedules,
  // totals of routers, transfers of checkpoints, the largest tile where several ranks export it or
  // hash it, and exchange with other processes. Data takes nothing more: its tokens and the index
  // of its sequences stay in files.
  int64_t process_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t device_bytes = 0;  // arena + streams' workspace + scratch for exchange
  int64_t host_bytes = 0;    // pool + process, + device_bytes of each device that shares the host
  int64_t checkpoint_bytes = 0;  // on disk, of one checkpoint with the state of all processes
  MemoryBudget budget;
  int64_t host_limit = 0;  // the smaller of engine.host_memory, if set, and the budget
  // The most bytes of each device. For a GPU it is the smaller of engine.device_memory, if set, and
  // budget.device_bytes. For the cpu device it is engine.device_memory, or budget.device_bytes if
  // the job sets none; plans of evaluation and generation take the smaller if both are set. If both
  // are 0, PlanMemory chooses a limit from the free host memory (MemoryBudget::device_bytes), and
  // the other plans have kUnlimitedBytes.
  int64_t device_limit = 0;
  bool fits = true;
  // Names the memory that does not suffice, with bytes: of the host's the first kind that lacks,
  // and the device's. Empty if `fits`.
  std::string misfit;

  // Decisions and the predicted time of a step with them.
  struct Timed {
    PipelineShape shape;
    StepPrediction predicted;
  };
  // Set by PlanMemory if the plan fits and the machine's rates are known.
  std::optional<StepPrediction> predicted;
  bool chosen_by_time = false;  // else by rule
  // `runner_up` is the best of the other plans, or nullopt if no other plan was compared. If the
  // rule's plan was chosen, the runner-up's step may be shorter, but not by a worthwhile part
  // (ChooseByTime). `by_rule` is the plan of FitDeviceByRule (device_fit.h). It is nullopt if that
  // plan was chosen or does not fit; it may be the runner-up too. Both are nullopt if the rates are
  // not known.
  std::optional<Timed> runner_up, by_rule;

  // Describes the plan for people.
  std::string Table() const;
};

// One of the processes of a job, each of which has spec.engine.devices devices (0 counts as 1).
struct ProcessOfJob {
  int count = 1;   // of the job's processes
  int number = 0;  // of this one, from 0
};

// Returns InvalidArgument, naming the layer, if a layer has heads that are larger than the kernels
// take.
absl::Status CheckHeadSizes(const ModelDescription& model, const KernelSizes& sizes);

// Plans a training job. If the rates of `machine` are not known, FitDeviceByRule (device_fit.h)
// decides; if its plan does not fit the host, smaller sweeps and recomputing all are tried, here
// and where no plan that was predicted fits. A job that does not fit is no error: its plan has fits
// == false. `layout` must outlive the plan; `sizes` is used during the call only. Processes that
// differ in `processes.number` alone get the same decisions and bytes.
//
// Returns the errors of CheckHeadSizes, and InvalidArgument if
// - a sequence is longer than the model's positions;
// - kMicroBatchTokensMax, kStepLayerPassesMax or, by engine.micro_batches_per_sweep,
//   PipelineShape::sweeps_max is exceeded;
// - devices or training.gradient_shards cannot share the micro-batches;
// - clipping cannot work with engine.gradient_slabs;
// - there are several processes and engine.loads is `whole`;
// - there is a router_auxiliary_loss but the model has no experts.
//
// REQUIRES, here and below: the job's values are within the bounds of their keys
// (engine/job/job_keys.h). Here: 0 <= processes.number < processes.count.
absl::StatusOr<MemoryPlan> PlanMemory(const JobSpec& spec, const ModelLayout& layout,
                                      const KernelSizes& sizes, const MemoryBudget& budget,
                                      const MachineSpeed& machine = {},
                                      const ProcessOfJob& processes = {});

// Plans an evaluation of `spec` with weights alone. Lifetimes and `fits` are as for PlanMemory.
// Returns the errors of CheckHeadSizes, and those of PlanMemory about sequence length,
// micro-batches, sweeps and gradient_shards. No time is predicted, here and below. REQUIRES:
// engine.devices is 0 or 1.
absl::StatusOr<MemoryPlan> PlanEvaluation(const JobSpec& spec, const ModelLayout& layout,
                                          const KernelSizes& sizes, const MemoryBudget& budget);

// The prompts to be answered.
struct GenerationNeed {
  std::vector<int64_t> prompt_tokens;  // of each prompt, in their order
  int64_t answer_tokens = 0;           // of each answer at most
};
// Plans the answers to prompts (engine/generation/generation_batch.h) with weights in `dtype`. They
// are made in waves, each for dimensions.micro_batches consecutive prompts together, the last one
// for the rest. Waves are the largest that a bisection finds to fit, or of one prompt if none fit.
// The plan has as many weight buffers as fit then. On a device that shares the host's memory it has
// kWeightBuffersMin (plan_choice.h) buffers unless engine.device_memory is given. Lifetimes and
// `fits` are as for PlanMemory. REQUIRES: there are prompts, and CheckHeadSizes returned OK.
MemoryPlan PlanGeneration(const JobSpec::Engine& engine, const ModelLayout& layout, DType dtype,
                          const GenerationNeed& need, const KernelSizes& sizes,
                          const MemoryBudget& budget);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_MEMORY_PLAN_H_

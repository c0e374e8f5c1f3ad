// Computes every byte that a job takes before anything is allocated, and makes the decisions that
// depend on it: the place of the stash, the micro-batches of a sweep, the activations that are kept
// for the backward pass, and the number of weight buffers. If the machine's rates are known, the
// decisions are those of the shortest predicted step. Results of training do not depend on them.
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

// The largest product of a step's micro-batches and layers. Plans and schedules have an entry for
// each pair; this many take 200 MiB and a second. The limit protects the daemon, which plans job
// files of any origin before it queues them.
inline constexpr int64_t kStepLayerPassesMax = int64_t{1} << 20;

struct MemoryPlan {
  struct Item {
    std::string name;
    int64_t bytes = 0;
  };
  PipelineDimensions dimensions;
  int64_t parameters = 0;
  std::vector<Item> host;    // the pool by kind, the process, a device that shares the host
  std::vector<Item> device;  // the arena by name, and the streams' workspace
  int64_t pool_bytes = 0;
  int64_t process_bytes = 0;  // program, libraries, scratch of kernels, loader
  int64_t arena_bytes = 0;
  int64_t device_bytes = 0;  // arena + streams' workspace
  int64_t host_bytes = 0;    // pool + process, + device if it shares the host
  int64_t checkpoint_bytes = 0;
  MemoryBudget budget;
  int64_t host_limit = 0;    // engine.host_memory, or the budget
  int64_t device_limit = 0;  // of engine.device_memory and MemoryBudget::device_bytes
  bool fits = true;
  std::string misfit;  // names what does not fit, in bytes

  // Decisions and the predicted time of a step with them.
  struct Timed {
    PipelineShape shape;
    StepPrediction predicted;
  };
  // Set if the plan fits and the machine's rates are known.
  std::optional<StepPrediction> predicted;
  // The best plan that was not chosen, and the plan that the rule for machines of unknown rates
  // gives if it is another. nullopt if the job leaves no other choice.
  std::optional<Timed> runner_up, by_rule;

  // Describes the plan for people.
  std::string Table() const;
};

// Plans a training job. If the rates of `machine` are not measured, decisions are made by rule
// (device_fit.h). A job that does not fit gives a plan with fits == false. Returns InvalidArgument
// for settings that contradict each other (gradient_slabs with clipping, a sequence longer than the
// model's positions) and for more than kStepLayerPassesMax. `layout` must outlive the plan; `sizes`
// is used during the call only.
absl::StatusOr<MemoryPlan> PlanMemory(const JobSpec& spec, const ModelLayout& layout,
                                      const KernelSizes& sizes, const MemoryBudget& budget,
                                      const MachineSpeed& machine = {});

// Plans forward passes over sequences of `tokens` tokens, for `generate`. Lifetimes and `fits` are
// as for PlanMemory.
absl::StatusOr<MemoryPlan> PlanGeneration(const ModelLayout& layout, DType dtype, int64_t tokens,
                                          const KernelSizes& sizes, const MemoryBudget& budget);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_MEMORY_PLAN_H_

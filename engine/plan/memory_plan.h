// Every byte a job takes, computed before anything is allocated, and the decisions that follow from
// what there is: where the stash lies, how many micro-batches a sweep has, what is kept for
// backward, how many weight buffers there are. Where the machine's rates are known the decisions
// are those of the shortest predicted step; no result of training depends on them.
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

// Of a machine whose memory is not known.
inline constexpr int64_t kUnlimitedBytes = std::numeric_limits<int64_t>::max();

// Micro-batches of a step times layers. Plans and schedules hold an entry for each: these take some
// 200 MiB and a second. A job file may come from anyone, and the daemon plans it before the queue.
inline constexpr int64_t kStepLayerPassesMax = int64_t{1} << 20;

struct MemoryPlan {
  struct Item {
    std::string name;
    int64_t bytes = 0;
  };
  PipelineDimensions dimensions;
  int64_t parameters = 0;
  std::vector<Item> host;    // the pool by kind, and the process itself
  std::vector<Item> device;  // the arena by name, and what streams take beside it
  int64_t pool_bytes = 0;
  int64_t process_bytes = 0;  // program, libraries, kernels' scratch, loader
  int64_t arena_bytes = 0;
  int64_t device_bytes = 0;  // arena + streams' workspace
  int64_t host_bytes = 0;    // pool + process + device where it shares the host
  int64_t checkpoint_bytes = 0;
  MemoryBudget budget;
  int64_t host_limit = 0;    // engine.host_memory, or the budget
  int64_t device_limit = 0;  // engine.device_memory and the budget, or the rule above
  bool fits = true;
  std::string misfit;  // what does not fit, in bytes

  // The decisions, and how long a step takes with them.
  struct Timed {
    PipelineShape shape;
    StepPrediction predicted;
  };
  // If the plan fits and the machine's rates are known.
  std::optional<StepPrediction> predicted;
  // The best of the plans that were not chosen, and what the rule for machines of unknown rates
  // would have chosen if that is another. Nothing: the job leaves no other choice.
  std::optional<Timed> runner_up, by_rule;

  // For people.
  std::string Table() const;
};

// `machine` of unknown rates: decisions go by rule (device_fit.h).
// `layout` and `sizes` must outlive the plan. InvalidArgument: settings that contradict each
// other (gradient_slabs with clipping, a sequence longer than the model's positions), more than
// kStepLayerPassesMax. A job that does not fit is a plan with fits == false.
absl::StatusOr<MemoryPlan> PlanMemory(const JobSpec& spec, const ModelLayout& layout,
                                      const KernelSizes& sizes, const MemoryBudget& budget,
                                      const MachineSpeed& machine = {});

// A forward-only plan for sequences of `tokens` tokens: what `generate` needs.
absl::StatusOr<MemoryPlan> PlanGeneration(const ModelLayout& layout, DType dtype, int64_t tokens,
                                          const KernelSizes& sizes, const MemoryBudget& budget);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_MEMORY_PLAN_H_

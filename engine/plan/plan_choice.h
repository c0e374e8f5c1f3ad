// ChooseByTime chooses between plans by the predicted time of a step. Plans differ in the sweep
// size, the place of the stash, the number of weight buffers, the share of updates on the device,
// and what each of several devices loads of a tile. What the job fixes is the same in all. Each
// plan keeps as many activations as fit.
//
// A step takes at least the time of its kernels. Plans are predicted in the order of this lower
// bound until no other can be among the best, so only a few of dozens are predicted.
#ifndef MEGATRAIN_ENGINE_PLAN_PLAN_CHOICE_H_
#define MEGATRAIN_ENGINE_PLAN_PLAN_CHOICE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "engine/device/kernel_sizes.h"
#include "engine/job/job_spec.h"
#include "engine/plan/memory_plan.h"

namespace megatrain {

// The number of weight buffers that the rule uses, and the least that is tried, if the job leaves
// it open.
inline constexpr int kWeightBuffersMin = 2;

// Returns the plan with the shortest predicted step among those that were predicted. Returns the
// rule's plan if it fits and no other is shorter by a worthwhile part (1% on a GPU, 5% on the cpu),
// or if no plan fits. `by_rule` has the dimensions that FitDeviceByRule chose under `device_limit`
// bytes. `finish` makes a plan from dimensions and sets its bytes and `fits`; it is called many
// times, during the call only. The same arguments give the same plan. REQUIRES:
// machine.rates.known().
MemoryPlan ChooseByTime(const JobSpec& spec, const KernelSizes& sizes, const MachineSpeed& machine,
                        int64_t device_limit, const PipelineDimensions& by_rule,
                        absl::FunctionRef<MemoryPlan(const PipelineDimensions&)> finish);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_PLAN_CHOICE_H_

// Chooses between plans by the predicted time of a step. Plans differ in the sweep size, the place
// of the stash and, if the job leaves it open, the number of weight buffers and the share of
// updates on the device. Each keeps as many activations as fit.
//
// The kernels alone give a least time for every plan. Plans are predicted in the order of this time
// until the rest cannot be among the best, so that only a few of the dozens are predicted.
#ifndef MEGATRAIN_ENGINE_PLAN_PLAN_CHOICE_H_
#define MEGATRAIN_ENGINE_PLAN_PLAN_CHOICE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "engine/device/kernel_sizes.h"
#include "engine/job/job_spec.h"
#include "engine/plan/memory_plan.h"

namespace megatrain {

// The number of weight buffers if the job leaves it open and no rates are known.
inline constexpr int kWeightBuffersMin = 2;

// `by_rule` is what FitDeviceByRule chose under `device_limit`. `finish` makes a plan of
// dimensions, with its bytes and whether it fits. Returns a plan that differs from the rule's only
// if it is predicted to be shorter or the rule's does not fit; if nothing fits, the rule's. The
// same arguments give the same plan. REQUIRES: machine.rates.measured().
MemoryPlan ChooseByTime(const JobSpec& spec, const KernelSizes& sizes, const MachineSpeed& machine,
                        int64_t device_limit, const PipelineDimensions& by_rule,
                        absl::FunctionRef<MemoryPlan(const PipelineDimensions&)> finish);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_PLAN_CHOICE_H_

// The choice between plans by how long a step of theirs takes: size of the sweeps, place of the
// stash and, where the job leaves it open, the number of weight buffers; each with as many kept
// activations as fit.
//
// Every plan that fits has a least time, that of its kernels alone. Plans are predicted in the
// order of it until no other can be the second best, so that few of the dozens are.
#ifndef MEGATRAIN_ENGINE_PLAN_PLAN_CHOICE_H_
#define MEGATRAIN_ENGINE_PLAN_PLAN_CHOICE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "engine/device/kernel_sizes.h"
#include "engine/job/job_spec.h"
#include "engine/plan/memory_plan.h"

namespace megatrain {

// Of job files that leave the number open, where no times are known.
inline constexpr int kWeightBuffersMin = 2;

// `by_rule` is what FitDeviceByRule chose under `device_limit`; `finish` makes a plan of
// dimensions, with its bytes and whether it fits. The same arguments give the same plan. One that
// differs from the rule's is predicted to be shorter, or the rule's does not fit. If nothing fits,
// the rule's.
MemoryPlan ChooseByTime(const JobSpec& spec, const KernelSizes& sizes, const MachineSpeed& machine,
                        int64_t device_limit, const PipelineDimensions& by_rule,
                        absl::FunctionRef<MemoryPlan(const PipelineDimensions&)> finish);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_PLAN_CHOICE_H_

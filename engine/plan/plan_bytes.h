// Counts the bytes of a plan: what a job takes of the device's memory, the host's and the disk.
#ifndef MEGATRAIN_ENGINE_PLAN_PLAN_BYTES_H_
#define MEGATRAIN_ENGINE_PLAN_PLAN_BYTES_H_

#include <cstdint>

#include "engine/plan/memory_plan.h"

namespace megatrain {

// Returns what MemoryPlan::process_bytes counts, but without kernels' scratch, schedules and
// exchange. In a training plan it does not depend on the decisions.
int64_t ProcessBytes(const PipelineDimensions& d);

// Sets the bytes of `plan` to those of plan.dimensions. Sets `fits` to false, with `misfit`, if
// they do not fit into the plan's budget and limits. REQUIRES: dimensions, budget and limits are
// set; the plan was not finished before, because bytes are added.
void FinishPlan(const KernelSizes& sizes, MemoryPlan& plan);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_PLAN_BYTES_H_

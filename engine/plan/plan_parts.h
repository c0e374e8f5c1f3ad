// The parts that plans of training, evaluation and generation share.
#ifndef MEGATRAIN_ENGINE_PLAN_PLAN_PARTS_H_
#define MEGATRAIN_ENGINE_PLAN_PLAN_PARTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/plan/memory_plan.h"

namespace megatrain {

// Returns the model's shape, for one rank. Decisions have their defaults, but embedding_from_host
// is true. A caller with several ranks must set it to false.
PipelineShape BaseShape(const ModelLayout& layout, DType dtype);

// Returns InvalidArgument, as PlanMemory does, for sequences longer than the model's positions, for
// sizes of a batch that no machine can have or that the devices of the job's `processes` cannot
// share, and for more sweeps of a step than there may be (PipelineShape::sweeps_max).
absl::Status CheckBatch(const JobSpec& spec, const ModelLayout& layout, int processes = 1);
// Sets in `d` the processes, the ranks with their folds, and the sizes of batches and chunks; `d`
// may be empty before. REQUIRES: CheckBatch has returned OK for these arguments.
void SetBatch(const JobSpec& spec, const ModelLayout& layout, const KernelSizes& sizes,
              PipelineDimensions& d, int processes = 1);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_PLAN_PARTS_H_

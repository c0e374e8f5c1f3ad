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

// Returns InvalidArgument, as PlanMemory does, for sequences longer than the model's positions; for
// sizes beyond kMicroBatchTokensMax, kStepLayerPassesMax or PipelineShape::sweeps_max; and if the
// devices of the job's `processes`, or training.gradient_shards, cannot share the micro-batches.
// REQUIRES: the job's values are within the bounds of their keys.
absl::Status CheckBatch(const JobSpec& spec, const ModelLayout& layout, int processes = 1);
// Sets in `d` the processes, the ranks with their folds, and the sizes of batches and chunks; `d`
// may be empty before. It writes d.shape.ranks and d.shape.folds: assign BaseShape's result before,
// or keep these two. REQUIRES: CheckBatch has returned OK for these arguments.
void SetBatch(const JobSpec& spec, const ModelLayout& layout, const KernelSizes& sizes,
              PipelineDimensions& d, int processes = 1);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_PLAN_PARTS_H_

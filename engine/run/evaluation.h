// Measures the loss of a model over evaluation sets, for runs and for Evaluate of engine.h.
#ifndef MEGATRAIN_ENGINE_RUN_EVALUATION_H_
#define MEGATRAIN_ENGINE_RUN_EVALUATION_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/sequences/dataset.h"
#include "engine/engine.h"
#include "engine/job/job_spec.h"
#include "engine/trainer/trainer.h"

namespace megatrain {

// Returns the losses of the evaluation sequences of `dataset`: of all together, and of each set
// with a name. Of the report it sets `all` and `sets` alone. `read` returns evaluation sequence
// `index` of `dataset` (from 0). Calls go_on() before each batch and returns its error. Batches
// have training.global_batch sequences, but the last one of a set has the rest. Adds the rewards of
// pairs to `*rewards` unless it is null.
//
// Returns InvalidArgument if a set with a name, or all sets together, hold no prediction, the
// errors of reading by way of AsInputError (open_data.h), and those of Trainer::EvaluateLossSum.
// REQUIRES: trainer.in_flight() == 0, and trainer.holds_device() when go_on() returns OK.
absl::StatusOr<EvaluationReport> EvaluateDataset(
    const Dataset& dataset, absl::FunctionRef<absl::StatusOr<Sequence>(int64_t index)> read,
    const JobSpec& spec, Trainer& trainer, absl::FunctionRef<absl::Status()> go_on,
    RewardSums* rewards = nullptr);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_EVALUATION_H_

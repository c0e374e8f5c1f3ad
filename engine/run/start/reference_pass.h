// Computes the log-probabilities of all answers by the reference of a preference objective: a
// forward pass of the model as the job begins, before its first step. They are kept in the cache
// of prepared data (reference_logps.h), under a key made of the weights, the data, the batches and
// the device's arithmetic. A checkpoint notes the weights' hash. So a run that is resumed reads the
// values without the model, and makes them again only if they are gone.
#ifndef MEGATRAIN_ENGINE_RUN_START_REFERENCE_PASS_H_
#define MEGATRAIN_ENGINE_RUN_START_REFERENCE_PASS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/run/start/prepare_run.h"
#include "engine/run/start/run_context.h"
#include "engine/trainer/trainer.h"

namespace megatrain {

// Sets prepared.reference, and prepared.start.reference to the hash of its weights, if the job has
// a reference. Returns true if the tiles were filled with the model that the job begins with.
// Returns FailedPrecondition if the values must be made again and the model is not the one that the
// run began with, InvalidArgument for a value that is not finite, Cancelled once the run is asked
// to end, and the errors of InitialModel, of the trainer, and of reading and writing. REQUIRES:
// prepared.start is chosen; no step is in flight.
absl::StatusOr<bool> PrepareReference(RunContext& run, PreparedRun& prepared, Trainer& trainer);

// Reads sequence `index` (from 0) of the evaluation data, with the reference's values if there is a
// reference. Returns the errors of reading.
absl::StatusOr<Sequence> ReadEvalSequence(const PreparedRun& prepared, int64_t index);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_REFERENCE_PASS_H_

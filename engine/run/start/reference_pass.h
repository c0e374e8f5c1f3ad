// PrepareReference computes the log-probabilities that the reference of a preference objective
// (DPO) gives to all answers, by forward passes before the first step. The reference is the model
// that the job begins with.
//
// The values are kept in the cache of prepared data (reference_logps.h), under a key made of the
// weights, the model and its precision, the data, the batches and the device's arithmetic. A
// checkpoint stores a hash of the reference's weights. So a run that is resumed reads the values
// without the model, and computes again only what the cache lacks under that key.
#ifndef MEGATRAIN_ENGINE_RUN_START_REFERENCE_PASS_H_
#define MEGATRAIN_ENGINE_RUN_START_REFERENCE_PASS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/run/start/prepare_run.h"
#include "engine/run/start/run_context.h"
#include "engine/trainer/trainer.h"

namespace megatrain {

// Makes or opens the reference's values, if the job has a reference. Sets prepared.reference to
// them and prepared.start.reference to the hash of the reference's weights. Without a reference it
// sets nothing and returns false. Returns true if it has filled the trainer's tiles with the model
// that the job begins with; a run that is resumed must then fill them from its checkpoint. Returns
// false if it has not changed the tiles. All processes of the job must call it.
//
// Returns FailedPrecondition if the values must be computed again and the model is not the one that
// the run began with, InvalidArgument for a value that is not finite, Cancelled once the run is
// asked to end, and the errors of InitialModel, CheckSameWeights, the trainer, the communicator,
// and of reading and writing. After an error the tiles may be changed. REQUIRES: prepared.start is
// chosen, no step is in flight, and the device is held.
absl::StatusOr<bool> PrepareReference(RunContext& run, PreparedRun& prepared, Trainer& trainer);

// Reads sequence `index` (from 0) of the evaluation data, with the reference's values if there is a
// reference. Returns the errors of reading. REQUIRES: there is such a sequence, and
// PrepareReference has returned.
absl::StatusOr<Sequence> ReadEvalSequence(const PreparedRun& prepared, int64_t index);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_REFERENCE_PASS_H_

// Checks before the first step that the processes of a job have the same model, because each reads
// its part of the weights from files of its own.
#ifndef MEGATRAIN_ENGINE_RUN_START_MODEL_FILES_H_
#define MEGATRAIN_ENGINE_RUN_START_MODEL_FILES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/run/start/run_context.h"

namespace megatrain {

// The bytes that are compared at the beginning, in the middle and at the end of a tensor; one that
// has no more than three times as many is compared whole. A fine-tuned model differs from the one
// that it was made from nearly everywhere, and reading a model whole would take minutes.
inline constexpr int64_t kSampleBytes = 4096;

// Compares model.path's config.json and the side files (ListHfSideFiles), whole. Returns
// FailedPrecondition, naming the ranks and the file, if they differ or one is missing, and the
// errors of reading and of the communicator. All processes must call it. Does nothing for a process
// alone.
absl::Status CheckSameSideFiles(RunContext& run);

// Compares the files of model.path's weights: the names, types, shapes and offsets of all tensors,
// and kSampleBytes in three places of each. Bytes that differ elsewhere are not found. Takes the
// time of reading three pages a tensor, on kTransferThreads threads. Returns FailedPrecondition,
// naming the ranks and the file or tensor, if they differ, Cancelled once the run is asked to end,
// and the errors of StoredTensors::Open, of reading and of the communicator. All processes must
// call it. Does nothing for a process alone.
absl::Status CheckSameWeights(RunContext& run);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_MODEL_FILES_H_

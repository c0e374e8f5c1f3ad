// A HF directory from a checkpoint.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_EXPORT_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_EXPORT_CHECKPOINT_H_

#include <string>

#include "absl/status/status.h"

namespace megatrain {

// Writes the weights of `checkpoint` as a HF directory, BF16 or F32 as they are in it; see
// ExportHfDirectory for what becomes of an `out_directory` that exists. Memory: the weights of one
// tile. Checksums are compared while reading: DataLoss names a damaged file and leaves no output.
absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& out_directory);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_EXPORT_CHECKPOINT_H_

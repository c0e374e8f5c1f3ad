// Exports a checkpoint as a Hugging Face model directory.
#ifndef MEGATRAIN_ENGINE_INSPECT_EXPORT_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_INSPECT_EXPORT_CHECKPOINT_H_

#include <string>

#include "absl/status/status.h"
#include "engine/base/file.h"

namespace megatrain {

// Writes the weights of the step directory `checkpoint` to `directory`, in BF16 or FP32 as they
// were trained, with config.json, the tokenizer files and the tensors that a WrapperDescription
// carries. ExportHfDirectory says when an existing `directory` is replaced. Verifies checksums
// while it reads. Takes memory for the weights of the largest tile (engine/model/tile.h) and, for a
// matrix whose columns lie in several tiles, for strips of its rows (WriteHfWeights). Returns
// ResourceExhausted without that memory, FailedPrecondition for a checkpoint that has a part of the
// tiles alone, and the errors of ReadManifest, ReadModelDescription, VerifyAllButTileContents,
// LoadCheckpointTile, StoredTensors::Open and ExportHfDirectory.
absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& directory,
                              FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_EXPORT_CHECKPOINT_H_

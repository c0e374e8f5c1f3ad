// Describes a checkpoint, for people and for programs.
#ifndef MEGATRAIN_ENGINE_INSPECT_INSPECT_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_INSPECT_INSPECT_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/inspect/inspect_model.h"

namespace megatrain {

// Returns InspectModel's report of the step directory `checkpoint`, which is also a Hugging Face
// directory, with the state from its manifest. In the JSON, kind is "checkpoint" and the state is
// under the key `checkpoint`. The report of a checkpoint that has a part of the tiles
// (CheckpointPart) is the state and the part's number, from 1. The files' checksums are not
// verified, but for the manifest's own. Reads by PosixFileSystem. Returns the errors of
// ReadManifest and InspectModel.
absl::StatusOr<ModelReport> InspectCheckpoint(const std::string& checkpoint);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_INSPECT_CHECKPOINT_H_

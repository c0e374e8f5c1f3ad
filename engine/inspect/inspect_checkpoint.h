// What a checkpoint holds, for people and for programs.
#ifndef MEGATRAIN_ENGINE_INSPECT_INSPECT_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_INSPECT_INSPECT_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/hf/inspect_model.h"

namespace megatrain {

// The report of its model (a checkpoint is a HF directory too) and what its manifest says; the
// JSON's kind is "checkpoint", with a key `checkpoint`. Checksums are not compared.
absl::StatusOr<ModelReport> InspectCheckpoint(const std::string& checkpoint);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_INSPECT_CHECKPOINT_H_

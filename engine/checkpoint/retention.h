// Which checkpoints stay.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_RETENTION_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint_state.h"

namespace megatrain {

// Which checkpoints of a run stay when it has saved a new one.
struct Retention {
  int64_t keep = 1;
  // Steps that were found damaged when the run looked for a checkpoint to go on from. They go, and
  // are not counted, once the run has saved a later one.
  std::vector<int64_t> damaged;
  // Steps newer than the checkpoint that the run goes on from, of whatever run, which are to go
  // with the first checkpoint that it saves (CheckpointWriter::Finish).
  std::vector<int64_t> discard;
};

// The checkpoints beneath `directory` that are newer than `step`, highest first; those in
// `retention.damaged` are none. A directory without a manifest that can be parsed is none either: a
// line for the log goes to *notes.
absl::StatusOr<std::vector<int64_t>> ListNewer(const std::string& directory, int64_t step,
                                               const Retention& retention,
                                               std::vector<std::string>* notes,
                                               FileSystem* files = PosixFileSystem());

// The steps to remove once `verified` was written and verified: a pure function. `steps` are of the
// same run.
// - `verified` always stays, so at least one good checkpoint remains whatever `keep` says.
// - Of the earlier ones that are not damaged the `keep` - 1 newest stay.
// - Later ones stay: a new checkpoint says nothing about them.
std::vector<int64_t> StepsToRemove(std::vector<int64_t> steps, int64_t verified,
                                   const Retention& retention);

// Removes those beneath `directory`, where the checkpoint of `verified` was just written. What does
// not say that it is of the same run is left alone. So is a directory with foreign files in it, or
// one that cannot be removed, which *notes names: neither makes the new checkpoint worse.
void PruneCheckpoints(const std::string& directory, const CheckpointState& verified,
                      const Retention& retention, std::vector<std::string>* notes,
                      FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_RETENTION_H_

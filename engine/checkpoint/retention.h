// Which checkpoints stay.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_RETENTION_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/file.h"

namespace megatrain {

// The steps to remove once `verified` was written and verified: a pure function.
// - `verified` always stays, so at least one good checkpoint remains whatever `keep` says.
// - Of the earlier ones the `keep` - 1 newest stay.
// - Later ones go: they were found bad, or belong to a course of training that was left by resuming
//   from an earlier checkpoint; a later resume must not take them for this one's.
std::vector<int64_t> StepsToRemove(std::vector<int64_t> steps, int64_t verified, int64_t keep);

// Removes those beneath `directory`. A directory with foreign files in it is left alone and named
// in *notes, as is one that cannot be removed: neither makes the new checkpoint worse.
void PruneCheckpoints(const std::string& directory, int64_t verified, int64_t keep,
                      std::vector<std::string>* notes, FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_RETENTION_H_

// Joins the parts of a checkpoint into one that has all of the tiles. The machines of a job save
// parts where each has a directory of its own (checkpoint.shared: false).
#ifndef MEGATRAIN_ENGINE_INSPECT_GATHER_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_INSPECT_GATHER_CHECKPOINT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// Makes one checkpoint of `parts` in `directory` and returns its path. `parts` are the paths of the
// parts' step directories in any order. They are not changed. The checkpoint's tensor files are
// those that one process would have written. All files are synced, and verified against the
// checksums of the parts, before the checkpoint gets its name. Files that all parts have are taken
// from part 1, and verified there alone.
//
// Locks `directory`, creates it if it is missing, and removes what a call that died left in it
// (RemoveLeftovers). Returns InvalidArgument, naming the part, if `parts` are not all the parts of
// one save, each once, or if one lies in `directory`. Returns FailedPrecondition if `directory` has
// a checkpoint of this step, or step-XXXXXXXX.tmp that RemoveLeftovers has left alone, is locked or
// cannot be created (LockDirectory). Returns ResourceExhausted if the disk has no room, DataLoss
// for a part that is damaged, and the errors of ReadManifest and of `files`. After an error there
// is no new checkpoint, unless only its name could not be made durable.
absl::StatusOr<std::string> GatherCheckpoint(const std::vector<std::string>& parts,
                                             const std::string& directory,
                                             FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_GATHER_CHECKPOINT_H_

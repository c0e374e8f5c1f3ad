// Finds the newest checkpoint in a directory, passing over damaged ones.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_NEWEST_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_NEWEST_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// Returns the value of a job key (CheckpointState::spec) in the newest checkpoint in `directory`
// whose manifest can be read. Returns "" if there is none, if it does not have the key, or if
// ListCheckpoints returns an error.
std::string NewestSpecValue(const std::string& directory, const std::string& key,
                            FileSystem* files = PosixFileSystem());

// A checkpoint that was found to be damaged.
struct DamagedCheckpoint {
  int64_t step = 0;
  std::string what;  // a text that names the file and the defect
};

// Returns the path of the newest checkpoint in `directory` that passes VerifyAllButTileContents, or
// nullopt if there is none. The steps in `*damaged` are passed over. Newer checkpoints that are
// found to be damaged are added to it, newest first. A caller whose LoadCheckpointTile finds damage
// adds that step too and calls again. A caller that gets nullopt and damaged checkpoints should not
// start anew in that directory unless the user asked for it.
//
// A checkpoint that cannot be read (an I/O error, no permission, no descriptor left) or that a
// later version wrote is not damaged. Its error is returned, and older checkpoints are not tried.
absl::StatusOr<std::optional<std::string>> FindNewestToLoad(const std::string& directory,
                                                            std::vector<DamagedCheckpoint>* damaged,
                                                            FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_NEWEST_CHECKPOINT_H_

// One process at a time may use a directory of checkpoints: two would prune each other's.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_DIRECTORY_LOCK_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_DIRECTORY_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// Makes `directory` if it is missing, and locks its file ".lock". FailedPrecondition if another
// process holds it, or if it cannot be made.
absl::StatusOr<std::unique_ptr<FileLock>> LockDirectory(const std::string& directory,
                                                        FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_DIRECTORY_LOCK_H_

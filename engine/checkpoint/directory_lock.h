// Locks a directory of checkpoints for one process. Two runs in one directory would prune each
// other's checkpoints.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_DIRECTORY_LOCK_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_DIRECTORY_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// Creates `directory` if it is missing and locks the file ".lock" in it, which stays there. The
// lock is held until the result is destroyed or the process ends. Does not wait. Returns
// FailedPrecondition if the lock is held already, also by this process. Returns it also if the
// directory cannot be created or the file not be locked, whatever the cause; only a full disk is
// ResourceExhausted (IsDiskFull). On a file system without locks it succeeds and locks nothing.
// `files` must outlive the result.
absl::StatusOr<std::unique_ptr<FileLock>> LockDirectory(const std::string& directory,
                                                        FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_DIRECTORY_LOCK_H_

#include "engine/checkpoint/directory_lock.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<FileLock>> LockDirectory(const std::string& directory,
                                                        FileSystem* files) {
  const auto refuse = [](const absl::Status& status) {
    if (IsDiskFull(status)) return status;
    return absl::FailedPreconditionError(
        absl::StrCat(status.message(), "; checkpoint.directory names it"));
  };
  if (const absl::Status made = files->CreateDirectories(directory); !made.ok()) {
    return refuse(made);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> lock = files->TryLock(JoinPath(directory, ".lock"));
  if (!lock.ok()) return refuse(lock.status());
  if (*lock == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory,
                     ": another process is training into it; wait for it to end, or use "
                     "another checkpoint.directory"));
  }
  return lock;
}

}  // namespace megatrain

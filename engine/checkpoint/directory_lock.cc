#include "engine/checkpoint/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace megatrain {

absl::StatusOr<DirectoryLock> DirectoryLock::Take(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, ": cannot be made (", error.message(), "); checkpoint.directory names it"));
  }
  const std::string path = directory + "/.lock";
  DirectoryLock lock;
  lock.fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
  if (lock.fd_ < 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": cannot be opened (", strerror(errno),
                                                      "); checkpoint.directory names it"));
  }
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory,
                     ": another process is training into it; wait for it to end, or use "
                     "another checkpoint.directory"));
  }
  // A file system without locks protects nothing, but forbids nothing either.
  return lock;
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace megatrain

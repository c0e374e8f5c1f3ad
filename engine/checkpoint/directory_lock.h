// One process at a time may use a directory of checkpoints: two would prune each other's.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_DIRECTORY_LOCK_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_DIRECTORY_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace megatrain {

// Held as long as it lives; the kernel gives it back when the process ends, however that happens.
class DirectoryLock {
 public:
  // Makes `directory` if it is missing, and locks its file ".lock". FailedPrecondition if another
  // process holds it.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory);

  DirectoryLock() = default;
  DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  DirectoryLock& operator=(DirectoryLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

 private:
  int fd_ = -1;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_DIRECTORY_LOCK_H_

// A file system of a given size that only this process and its children see: what a full disk is
// tested with.
#ifndef MEGATRAIN_TESTS_E2E_SMALL_DISK_H_
#define MEGATRAIN_TESTS_E2E_SMALL_DISK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

class SmallDisk {
 public:
  // Mounts a tmpfs of `bytes` on `directory`, which is there and empty. PermissionDenied where the
  // system does not allow that. REQUIRES: no other thread has been started yet, for they would not
  // see it.
  static absl::StatusOr<std::unique_ptr<SmallDisk>> Mount(const std::string& directory,
                                                          int64_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // Takes all that is free; what is freed by others is not taken.
  absl::Status Fill();
  // Gives it back.
  void MakeRoom();

 private:
  explicit SmallDisk(std::string directory) : directory_(std::move(directory)) {}
  std::string Filler() const { return directory_ + "/filler"; }

  const std::string directory_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_E2E_SMALL_DISK_H_

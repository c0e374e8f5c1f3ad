// TemporaryDirectory is a directory for the files that a command needs while it runs.
#ifndef MEGATRAIN_SERVER_BASE_TEMPORARY_DIRECTORY_H_
#define MEGATRAIN_SERVER_BASE_TEMPORARY_DIRECTORY_H_

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

// The directory is removed with everything in it when the object is destroyed. What cannot be
// removed stays.
class TemporaryDirectory {
 public:
  // Makes a directory, which only this user can enter, in the system's directory for temporary
  // files. Returns Unavailable if that fails.
  static absl::StatusOr<std::unique_ptr<TemporaryDirectory>> Create() {
    std::error_code error;
    std::filesystem::path base = std::filesystem::temp_directory_path(error);
    if (error) return absl::UnavailableError(absl::StrCat("temporary files: ", error.message()));
    std::string path = (base / "megatrain-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError(absl::StrCat(path, ": cannot be made: ", std::strerror(errno)));
    }
    return std::unique_ptr<TemporaryDirectory>(new TemporaryDirectory(std::move(path)));
  }
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  // Valid as long as this object.
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_BASE_TEMPORARY_DIRECTORY_H_

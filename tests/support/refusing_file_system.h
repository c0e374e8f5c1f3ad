// File systems that refuse what is asked of the paths that hold a given text.
#ifndef MEGATRAIN_TESTS_SUPPORT_REFUSING_FILE_SYSTEM_H_
#define MEGATRAIN_TESTS_SUPPORT_REFUSING_FILE_SYSTEM_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/watched_file_system.h"

namespace megatrain {

// Such files and directories, if they are there, cannot be removed, nor names in them changed.
class ProtectingFileSystem : public WatchedFileSystem {
 public:
  explicit ProtectingFileSystem(std::string text, FileSystem* base = PosixFileSystem(),
                                absl::Status error = absl::PermissionDeniedError("is protected"))
      : WatchedFileSystem(base, [] { return absl::OkStatus(); }),
        text_(std::move(text)),
        error_(std::move(error)) {}
  absl::Status RemoveTree(const std::string& path) override {
    return IsProtected(path) ? Error(path) : WatchedFileSystem::RemoveTree(path);
  }
  absl::Status RemoveFile(const std::string& path) override {
    return IsProtected(path) ? Error(path) : WatchedFileSystem::RemoveFile(path);
  }
  absl::Status CheckWritable(const std::string& path) override {
    return IsProtected(path) ? Error(path) : WatchedFileSystem::CheckWritable(path);
  }

 private:
  bool IsProtected(const std::string& path) {
    return path.find(text_) != std::string::npos && FileExists(path);
  }
  absl::Status Error(const std::string& path) const {
    return absl::Status(error_.code(), absl::StrCat(path, " ", error_.message()));
  }

  const std::string text_;
  const absl::Status error_;
};

// Such files cannot be opened for reading, with the system's error number `error`.
class UnreadableFileSystem : public WatchedFileSystem {
 public:
  UnreadableFileSystem(std::string text, int error)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }),
        text_(std::move(text)),
        error_(error) {}
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    if (path.find(text_) != std::string::npos) return FileError("open", path, error_);
    return WatchedFileSystem::OpenForReading(path);
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenBlocksForReading(
      const std::string& path) override {
    return OpenForReading(path);
  }

 private:
  const std::string text_;
  const int error_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SUPPORT_REFUSING_FILE_SYSTEM_H_

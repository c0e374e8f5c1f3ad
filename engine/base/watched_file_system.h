// A file system that calls a function, `go_on`, before it reads, writes or syncs a file or opens
// one for writing, so that a caller can report progress and abandon long transfers at any point.
// All other operations, TryLock among them, go straight to the underlying file system, so that a
// caller that stopped can still remove what it began.
#ifndef MEGATRAIN_ENGINE_BASE_WATCHED_FILE_SYSTEM_H_
#define MEGATRAIN_ENGINE_BASE_WATCHED_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

class WatchedFileSystem : public FileSystem {
 public:
  // The most bytes read or written between two calls of `go_on`: a tenth of a second on a slow
  // disk.
  static constexpr int64_t kPieceBytes = int64_t{16} << 20;

  // `base` must outlive this object, and both must outlive all files opened through it. `go_on` is
  // called on the thread that reads or writes, possibly on several at once. If it returns an error,
  // the operation returns that error and does nothing more; earlier pieces of a write are then
  // written. REQUIRES: `go_on` is not empty.
  WatchedFileSystem(FileSystem* base, std::function<absl::Status()> go_on)
      : base_(base), go_on_(std::move(go_on)) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<BlockFile>> OpenBlockFile(const std::string& path,
                                                           int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenBlocksForReading(
      const std::string& path) override;

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return base_->Rename(from, to);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return base_->SyncDirectory(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return base_->CreateDirectories(path);
  }
  absl::Status RemoveFile(const std::string& path) override { return base_->RemoveFile(path); }
  absl::Status RemoveTree(const std::string& path) override { return base_->RemoveTree(path); }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    return base_->ListDirectory(path);
  }
  bool FileExists(const std::string& path) override { return base_->FileExists(path); }
  bool IsDirectory(const std::string& path) override { return base_->IsDirectory(path); }
  absl::StatusOr<FileInfo> Examine(const std::string& path) override {
    return base_->Examine(path);
  }
  absl::StatusOr<std::string> RealPath(const std::string& path) override {
    return base_->RealPath(path);
  }
  absl::Status CheckWritable(const std::string& path) override {
    return base_->CheckWritable(path);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override {
    return base_->TryLock(path);
  }
  absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path) override {
    return base_->FreeDiskBytes(path);
  }

 private:
  FileSystem* const base_;
  const std::function<absl::Status()> go_on_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_WATCHED_FILE_SYSTEM_H_

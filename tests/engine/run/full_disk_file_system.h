// The operating system's files on a disk that can be said to be full.
#ifndef MEGATRAIN_TESTS_ENGINE_RUN_FULL_DISK_FILE_SYSTEM_H_
#define MEGATRAIN_TESTS_ENGINE_RUN_FULL_DISK_FILE_SYSTEM_H_

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "engine/base/watched_file_system.h"

namespace megatrain {

// Thread safety: all methods from any thread.
class FullDiskFileSystem : public WatchedFileSystem {
 public:
  explicit FullDiskFileSystem(FileSystem* base)
      : WatchedFileSystem(base, [] { return absl::OkStatus(); }), base_(base) {}

  // After `operations` more files made or pieces written there is no room.
  void FillAfter(int64_t operations) { room_ = operations; }
  void MakeRoom() { room_ = std::numeric_limits<int64_t>::max(); }

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    if (--room_ < 0) return FileError("create", path, ENOSPC);
    auto file = base_->NewWritableFile(path);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(*std::move(file), path, &room_);
  }
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override {
    if (--room_ < 0) return FileError("create", path, ENOSPC);
    auto file = base_->NewBlockFile(path, bytes);
    if (!file.ok()) return file.status();
    return std::make_unique<Blocks>(*std::move(file), path, &room_);
  }

 private:
  class Blocks : public BlockFile {
   public:
    Blocks(std::unique_ptr<BlockFile> file, std::string path, std::atomic<int64_t>* room)
        : file_(std::move(file)), path_(std::move(path)), room_(room) {}
    absl::Status Write(int64_t offset, const void* data, int64_t bytes) override {
      if (--*room_ < 0) return FileError("write", path_, ENOSPC, bytes);
      return file_->Write(offset, data, bytes);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }

   private:
    const std::unique_ptr<BlockFile> file_;
    const std::string path_;
    std::atomic<int64_t>* const room_;
  };
  class File : public WritableFile {
   public:
    File(std::unique_ptr<WritableFile> file, std::string path, std::atomic<int64_t>* room)
        : file_(std::move(file)), path_(std::move(path)), room_(room) {}
    absl::Status Append(const void* data, int64_t bytes) override {
      if (--*room_ < 0) return FileError("write", path_, ENOSPC, bytes);
      return file_->Append(data, bytes);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }

   private:
    const std::unique_ptr<WritableFile> file_;
    const std::string path_;
    std::atomic<int64_t>* const room_;
  };

  FileSystem* const base_;
  std::atomic<int64_t> room_{std::numeric_limits<int64_t>::max()};
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_RUN_FULL_DISK_FILE_SYSTEM_H_

#include "engine/base/watched_file_system.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace megatrain {
namespace {

using GoOn = std::function<absl::Status()>;

class WatchedWritableFile : public WritableFile {
 public:
  WatchedWritableFile(std::unique_ptr<WritableFile> file, const GoOn& go_on)
      : file_(std::move(file)), go_on_(go_on) {}

  absl::Status Append(const void* data, int64_t bytes) override {
    const char* from = static_cast<const char*>(data);
    for (int64_t done = 0; done < bytes;) {
      const int64_t piece = std::min(bytes - done, WatchedFileSystem::kPieceBytes);
      MT_RETURN_IF_ERROR(go_on_());
      MT_RETURN_IF_ERROR(file_->Append(from + done, piece));
      done += piece;
    }
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    MT_RETURN_IF_ERROR(go_on_());
    return file_->Sync();
  }
  absl::Status Close() override { return file_->Close(); }

 private:
  const std::unique_ptr<WritableFile> file_;
  const GoOn& go_on_;
};

class WatchedBlockFile : public BlockFile {
 public:
  WatchedBlockFile(std::unique_ptr<BlockFile> file, const GoOn& go_on)
      : file_(std::move(file)), go_on_(go_on) {}

  absl::Status Write(int64_t offset, const void* data, int64_t bytes) override {
    const char* from = static_cast<const char*>(data);
    for (int64_t done = 0; done < bytes;) {
      const int64_t piece = std::min(bytes - done, WatchedFileSystem::kPieceBytes);
      MT_RETURN_IF_ERROR(go_on_());
      MT_RETURN_IF_ERROR(file_->Write(offset + done, from + done, piece));
      done += piece;
    }
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    MT_RETURN_IF_ERROR(go_on_());
    return file_->Sync();
  }
  absl::Status Close() override { return file_->Close(); }
  bool direct() const override { return file_->direct(); }

 private:
  const std::unique_ptr<BlockFile> file_;
  const GoOn& go_on_;
};

class WatchedRandomAccessFile : public RandomAccessFile {
 public:
  WatchedRandomAccessFile(std::unique_ptr<RandomAccessFile> file, const GoOn& go_on)
      : file_(std::move(file)), go_on_(go_on) {}

  absl::StatusOr<int64_t> ReadUpTo(int64_t offset, void* out, int64_t bytes) const override {
    char* to = static_cast<char*>(out);
    int64_t done = 0;
    while (done < bytes) {
      const int64_t piece = std::min(bytes - done, WatchedFileSystem::kPieceBytes);
      MT_RETURN_IF_ERROR(go_on_());
      MT_ASSIGN_OR_RETURN(const int64_t got, file_->ReadUpTo(offset + done, to + done, piece));
      done += got;
      if (got < piece) break;
    }
    return done;
  }
  int64_t size() const override { return file_->size(); }
  const std::string& path() const override { return file_->path(); }

 private:
  const std::unique_ptr<RandomAccessFile> file_;
  const GoOn& go_on_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WritableFile>> WatchedFileSystem::NewWritableFile(
    const std::string& path) {
  MT_RETURN_IF_ERROR(go_on_());
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base_->NewWritableFile(path));
  return std::make_unique<WatchedWritableFile>(std::move(file), go_on_);
}

absl::StatusOr<std::unique_ptr<BlockFile>> WatchedFileSystem::NewBlockFile(const std::string& path,
                                                                           int64_t bytes) {
  MT_RETURN_IF_ERROR(go_on_());
  MT_ASSIGN_OR_RETURN(std::unique_ptr<BlockFile> file, base_->NewBlockFile(path, bytes));
  return std::make_unique<WatchedBlockFile>(std::move(file), go_on_);
}

absl::StatusOr<std::unique_ptr<BlockFile>> WatchedFileSystem::OpenBlockFile(const std::string& path,
                                                                            int64_t bytes) {
  MT_RETURN_IF_ERROR(go_on_());
  MT_ASSIGN_OR_RETURN(std::unique_ptr<BlockFile> file, base_->OpenBlockFile(path, bytes));
  return std::make_unique<WatchedBlockFile>(std::move(file), go_on_);
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> WatchedFileSystem::OpenForReading(
    const std::string& path) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, base_->OpenForReading(path));
  return std::make_unique<WatchedRandomAccessFile>(std::move(file), go_on_);
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> WatchedFileSystem::OpenBlocksForReading(
    const std::string& path) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, base_->OpenBlocksForReading(path));
  return std::make_unique<WatchedRandomAccessFile>(std::move(file), go_on_);
}

}  // namespace megatrain

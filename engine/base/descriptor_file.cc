#include "engine/base/descriptor_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/descriptor.h"
#include "engine/base/directory_tree.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// The kernel moves at most 0x7ffff000 bytes a call.
constexpr int64_t kCallBytesMax = int64_t{1} << 30;
// After this many new bytes the kernel is asked to begin writing them out, so that a long file is
// not left to one long fsync.
constexpr int64_t kWritebackBytes = int64_t{32} << 20;

class DescriptorWritableFile : public WritableFile {
 public:
  DescriptorWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~DescriptorWritableFile() override {
    if (fd_ >= 0) ::close(fd_);
  }

  absl::Status Append(const void* data, int64_t bytes) override {
    const char* from = static_cast<const char*>(data);
    for (int64_t left = bytes; left > 0;) {
      const ssize_t written = ::write(fd_, from, std::min(left, kCallBytesMax));
      if (written < 0) {
        if (errno == EINTR) continue;
        return FileError("write", path_, errno, bytes);
      }
      from += written;
      left -= written;
      size_ += written;
    }
    if (size_ - started_ >= kWritebackBytes) {
      // Only a hint: an error shows up at Sync.
      ::sync_file_range(fd_, started_, size_ - started_, SYNC_FILE_RANGE_WRITE);
      started_ = size_;
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    while (::fsync(fd_) != 0) {
      if (errno != EINTR) return FileError("sync", path_, errno, size_);
    }
    // The page cache has better uses for memory than a checkpoint, and whoever verifies the file
    // then reads what the disk holds.
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0 && errno != EINTR) return FileError("close", path_, errno, size_);
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  int fd_;
  int64_t size_ = 0;
  int64_t started_ = 0;  // bytes whose writing out has begun
};

class DescriptorLock : public FileLock {
 public:
  explicit DescriptorLock(int fd) : fd_(fd) {}
  ~DescriptorLock() override { ::close(fd_); }

 private:
  const int fd_;
};

}  // namespace

std::unique_ptr<WritableFile> WriteThrough(const std::string& path, int fd) {
  return std::make_unique<DescriptorWritableFile>(path, fd);
}

absl::Status SyncDirectoryThrough(const std::string& path, int fd) {
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems (FUSE among them) cannot sync a directory and say EINVAL.
  if (result != 0 && error != EINVAL) return FileError("sync", path, error);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListThrough(const std::string& path, int fd) {
  DirectoryReader reader{Descriptor(fd)};
  std::vector<std::string> names;
  while (const char* name = reader.Next()) names.emplace_back(name);
  if (reader.error() != 0) return FileError("list", path, reader.error());
  std::sort(names.begin(), names.end());
  return names;
}

std::unique_ptr<FileLock> TryLockThrough(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;  // no locks here
    ::close(fd);
    return nullptr;
  }
  return std::make_unique<DescriptorLock>(fd);
}

FileInfo InfoOf(const struct stat& info) {
  FileInfo result;
  result.is_regular = S_ISREG(info.st_mode);
  result.is_directory = S_ISDIR(info.st_mode);
  result.bytes = result.is_regular ? info.st_size : 0;
  result.modified = absl::TimeFromTimespec(info.st_mtim);
  result.changed = absl::TimeFromTimespec(info.st_ctim);
  result.device = info.st_dev;
  result.inode = info.st_ino;
  return result;
}

}  // namespace megatrain

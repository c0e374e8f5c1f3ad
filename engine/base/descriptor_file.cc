#include "engine/base/descriptor_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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

// A descriptor whose transfers are direct while its file system allows that.
class TransferDescriptor {
 public:
  TransferDescriptor(int fd, bool direct) : fd_(fd), direct_(direct && SetDirect(true)) {}
  ~TransferDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  TransferDescriptor(const TransferDescriptor&) = delete;
  TransferDescriptor& operator=(const TransferDescriptor&) = delete;

  bool direct() const { return direct_; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

  // Goes through the page cache from now on.
  void UsePageCache() {
    if (!direct_) return;
    // The flag last: a thread that reads false must find the descriptor changed.
    SetDirect(false);
    direct_ = false;
  }

  // Calls `transfer`, a pread or pwrite of the descriptor, until it is neither interrupted nor
  // refused because it is direct.
  template <typename Transfer>
  ssize_t Try(const Transfer& transfer) {
    while (true) {
      const bool direct = direct_;
      const ssize_t moved = transfer(fd_);
      if (moved >= 0) return moved;
      if (errno == EINTR) continue;
      if (errno != EINVAL || !direct) return moved;
      UsePageCache();
    }
  }

 private:
  bool SetDirect(bool direct) {
    const int flags = ::fcntl(fd_, F_GETFL);
    return flags >= 0 && ::fcntl(fd_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
  }

  int fd_;
  std::atomic<bool> direct_;
};

class DescriptorBlockFile : public BlockFile {
 public:
  DescriptorBlockFile(std::string path, int fd, int64_t bytes)
      : path_(std::move(path)), descriptor_(fd, /*direct=*/true), bytes_(bytes) {}

  // Returns ENOSPC or EDQUOT as a full disk. Other failures mean that room cannot be reserved.
  absl::Status Reserve() {
    if (bytes_ == 0) return absl::OkStatus();
    int result;
    do {
      result = ::fallocate(descriptor_.get(), 0, 0, bytes_);
    } while (result != 0 && errno == EINTR);
    if (result == 0 || (errno != ENOSPC && errno != EDQUOT)) return absl::OkStatus();
    return FileError("write", path_, errno, bytes_);
  }

  absl::Status Write(int64_t offset, const void* data, int64_t bytes) override {
    const char* const from = static_cast<const char*>(data);
    // Direct transfers end with a page; Sync writes the rest of the file.
    const int64_t rest = bytes % kDirectAlignment;
    if (rest > 0) {
      rest_.assign(from + bytes - rest, static_cast<size_t>(rest));
      rest_offset_ = offset + bytes - rest;
    }
    MT_RETURN_IF_ERROR(WriteAll(offset, from, bytes - rest));
    if (!descriptor_.direct()) {
      // The kernel is asked to begin writing, so that a long file is not left to one long fsync.
      // Only a hint: an error shows up at Sync.
      ::sync_file_range(descriptor_.get(), offset, bytes, SYNC_FILE_RANGE_WRITE);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    direct_ = descriptor_.direct();
    if (!rest_.empty()) {
      descriptor_.UsePageCache();
      MT_RETURN_IF_ERROR(WriteAll(rest_offset_, rest_.data(), static_cast<int64_t>(rest_.size())));
    }
    while (::fsync(descriptor_.get()) != 0) {
      if (errno != EINTR) return FileError("sync", path_, errno, bytes_);
    }
    // The page cache has better uses for memory than a checkpoint, and a reader that verifies the
    // file then reads what the disk holds.
    ::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_DONTNEED);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    if (::close(descriptor_.Release()) != 0 && errno != EINTR) {
      return FileError("close", path_, errno, bytes_);
    }
    return absl::OkStatus();
  }

  bool direct() const override { return direct_; }

 private:
  absl::Status WriteAll(int64_t offset, const char* from, int64_t bytes) {
    for (int64_t done = 0; done < bytes;) {
      const ssize_t written = descriptor_.Try(
          [&](int fd) { return ::pwrite(fd, from + done, bytes - done, offset + done); });
      if (written < 0) return FileError("write", path_, errno, bytes_);
      done += written;
    }
    return absl::OkStatus();
  }

  const std::string path_;
  TransferDescriptor descriptor_;
  const int64_t bytes_;
  bool direct_ = true;
  std::string rest_;  // what of the last block is less than a page
  int64_t rest_offset_ = 0;
};

class DescriptorRandomAccessFile : public RandomAccessFile {
 public:
  DescriptorRandomAccessFile(std::string path, int fd, int64_t size, bool direct)
      : path_(std::move(path)), descriptor_(fd, direct), size_(size) {}

  absl::StatusOr<int64_t> ReadUpTo(int64_t offset, void* out, int64_t bytes) const override {
    char* const to = static_cast<char*>(out);
    int64_t done = 0;
    while (done < bytes) {
      const ssize_t got = descriptor_.Try(
          [&](int fd) { return ::pread(fd, to + done, bytes - done, offset + done); });
      if (got < 0) return FileError("read", path_, errno);
      done += got;
      if (got == 0 || offset + done == size_) break;
      // A direct read ends within a page at the end of a file that has changed, or before a sector
      // that cannot be read. The page cache tells which.
      if (got % kDirectAlignment != 0) descriptor_.UsePageCache();
    }
    return done;
  }
  int64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  const std::string path_;
  mutable TransferDescriptor descriptor_;
  const int64_t size_;
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

absl::StatusOr<std::unique_ptr<BlockFile>> WriteBlocksThrough(const std::string& path, int fd,
                                                              int64_t bytes) {
  auto file = std::make_unique<DescriptorBlockFile>(path, fd, bytes);
  MT_RETURN_IF_ERROR(file->Reserve());
  return file;
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> ReadThrough(const std::string& path, int fd,
                                                              bool direct) {
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return FileError("examine", path, error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return absl::InvalidArgumentError(absl::StrCat(
        path, S_ISDIR(info.st_mode) ? " is a directory, not a file" : " is not a regular file"));
  }
  return std::make_unique<DescriptorRandomAccessFile>(path, fd, info.st_size, direct);
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

// Files whose transfers are positioned: those written in blocks, and those read at any place. Both
// may go past the page cache.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/descriptor_file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

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
    if (direct_.exchange(false)) SetDirect(false);
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

}  // namespace

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

}  // namespace megatrain

// PosixFileSystem: the FileSystem of file.h over system calls.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// The kernel moves at most 0x7ffff000 bytes a call.
constexpr int64_t kCallBytesMax = int64_t{1} << 30;
// After this many new bytes the kernel is asked to begin writing them out, so that a long file is
// not left to one long fsync.
constexpr int64_t kWritebackBytes = int64_t{32} << 20;

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixWritableFile() override {
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

class PosixRandomAccessFile : public RandomAccessFile {
 public:
  PosixRandomAccessFile(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  ~PosixRandomAccessFile() override { ::close(fd_); }

  absl::Status Read(int64_t offset, void* out, int64_t bytes) const override {
    char* to = static_cast<char*>(out);
    while (bytes > 0) {
      const ssize_t got = ::pread(fd_, to, std::min(bytes, kCallBytesMax), offset);
      if (got < 0) {
        if (errno == EINTR) continue;
        return FileError("read", path_, errno);
      }
      if (got == 0) {
        return absl::DataLossError(
            absl::StrCat(path_, " ends at byte ", offset, ", ", bytes, " bytes too early"));
      }
      to += got;
      offset += got;
      bytes -= got;
    }
    return absl::OkStatus();
  }
  int64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  const std::string path_;
  const int fd_;
  const int64_t size_;
};

class Posix : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return FileError("create", path, errno);
    return std::make_unique<PosixWritableFile>(path, fd);
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    // O_NONBLOCK: opening a pipe that nobody writes would wait for ever.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FileError("open", path, errno);
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
    return std::make_unique<PosixRandomAccessFile>(path, fd, info.st_size);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) {
      return FileError("rename", absl::StrCat(from, " to ", to), errno);
    }
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FileError("open", path, errno);
    const int result = ::fsync(fd);
    const int error = errno;
    ::close(fd);
    // Some file systems (FUSE among them) cannot sync a directory and say EINVAL.
    if (result != 0 && error != EINVAL) return FileError("sync", path, error);
    return absl::OkStatus();
  }

  absl::Status CreateDirectories(const std::string& path) override {
    if (IsDirectory(path)) return absl::OkStatus();
    const std::string parent = ParentDirectory(path);
    if (parent != path && !IsDirectory(parent)) MT_RETURN_IF_ERROR(CreateDirectories(parent));
    if (::mkdir(path.c_str(), 0777) != 0 && !(errno == EEXIST && IsDirectory(path))) {
      return FileError("create", path, errno);
    }
    return absl::OkStatus();
  }

  absl::Status RemoveFile(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return FileError("remove", path, errno);
    return absl::OkStatus();
  }

  absl::Status RemoveTree(const std::string& path) override {
    struct stat info;
    if (::lstat(path.c_str(), &info) != 0) {
      return errno == ENOENT ? absl::OkStatus() : FileError("examine", path, errno);
    }
    if (!S_ISDIR(info.st_mode)) return RemoveFile(path);
    MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
    for (const std::string& name : names) MT_RETURN_IF_ERROR(RemoveTree(JoinPath(path, name)));
    if (::rmdir(path.c_str()) != 0) return FileError("remove", path, errno);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    DIR* const directory = ::opendir(path.c_str());
    if (directory == nullptr) return FileError("list", path, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    const int error = errno;
    ::closedir(directory);
    if (error != 0) return FileError("list", path, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  bool FileExists(const std::string& path) override {
    struct stat info;
    return ::lstat(path.c_str(), &info) == 0;
  }

  bool IsDirectory(const std::string& path) override {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  }

  absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path) override {
    std::string existing = path;
    while (!IsDirectory(existing)) {
      const std::string parent = ParentDirectory(existing);
      if (parent == existing) break;
      existing = parent;
    }
    struct statvfs info;
    if (::statvfs(existing.c_str(), &info) != 0) return FileError("examine", existing, errno);
    return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  }
};

}  // namespace

FileSystem* PosixFileSystem() {
  static Posix posix;  // no state, nothing to destroy
  return &posix;
}

}  // namespace megatrain

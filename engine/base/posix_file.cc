// PosixFileSystem: the FileSystem of file.h over system calls.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "engine/base/descriptor.h"
#include "engine/base/descriptor_file.h"
#include "engine/base/directory_tree.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

class Posix : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    MT_ASSIGN_OR_RETURN(const int fd, Create(path));
    return WriteThrough(path, fd);
  }

  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override {
    MT_ASSIGN_OR_RETURN(const int fd, Create(path));
    return WriteBlocksThrough(path, fd, bytes);
  }

  absl::StatusOr<std::unique_ptr<BlockFile>> OpenBlockFile(const std::string& path,
                                                           int64_t bytes) override {
    MT_ASSIGN_OR_RETURN(const int fd, Create(path, /*empty=*/false));
    return WriteBlocksThrough(path, fd, bytes);
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    return Open(path, /*direct=*/false);
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenBlocksForReading(
      const std::string& path) override {
    return Open(path, /*direct=*/true);
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
    return SyncDirectoryThrough(path, fd);
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
    std::string whole = path;
    while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
    const std::string name = whole.substr(whole.rfind('/') + 1);
    if (name.empty() || name == "." || name == "..") {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot remove ", path, ": it has no name of its own to remove"));
    }
    // Links on the way there are its caller's; none is followed from there on.
    const Descriptor parent(
        ::open(ParentDirectory(whole).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!parent.is_open()) {
      return errno == ENOENT ? absl::OkStatus() : FileError("remove", path, errno);
    }
    return RemoveTreeAt(parent.get(), name, path);
  }

  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FileError("list", path, errno);
    return ListThrough(path, fd);
  }

  bool FileExists(const std::string& path) override {
    struct stat info;
    return ::lstat(path.c_str(), &info) == 0;
  }

  bool IsDirectory(const std::string& path) override {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  }

  absl::StatusOr<FileInfo> Examine(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return FileError("examine", path, errno);
    return InfoOf(info);
  }

  absl::StatusOr<std::string> RealPath(const std::string& path) override {
    char real[PATH_MAX];
    if (::realpath(path.c_str(), real) == nullptr) return FileError("examine", path, errno);
    return std::string(real);
  }

  absl::Status CheckWritable(const std::string& path) override {
    const std::string existing = NearestExisting(path);
    if (!IsDirectory(existing)) {
      return absl::InvalidArgumentError(absl::StrCat(existing, " is not a directory"));
    }
    if (::faccessat(AT_FDCWD, existing.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
      return FileError("write in", existing, errno);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override {
    while (true) {
      const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
      if (fd < 0) return FileError("open", path, errno);
      struct stat held, named;
      const bool examined = ::fstat(fd, &held) == 0;
      std::unique_ptr<FileLock> lock = TryLockThrough(fd);
      if (lock == nullptr || !examined) return lock;
      // The former holder may have renamed or removed the file that is now locked here.
      const bool same = ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
                        held.st_dev == named.st_dev;
      if (same) return lock;
    }
  }

  absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path) override {
    const std::string existing = NearestExisting(path);
    struct statvfs info;
    if (::statvfs(existing.c_str(), &info) != 0) return FileError("examine", existing, errno);
    return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  }

 private:
  // Returns the descriptor of a file that was made, or emptied if `empty`.
  static absl::StatusOr<int> Create(const std::string& path, bool empty = true) {
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | (empty ? O_TRUNC : 0) | O_CLOEXEC, 0666);
    if (fd < 0) return FileError("create", path, errno);
    return fd;
  }

  static absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path,
                                                                bool direct) {
    // O_NONBLOCK: opening a pipe that nobody writes would wait for ever.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FileError("open", path, errno);
    return ReadThrough(path, fd, direct);
  }

  // `path` itself, or the first above it that is there.
  static std::string NearestExisting(const std::string& path) {
    std::string existing = path;
    struct stat info;
    while (::stat(existing.c_str(), &info) != 0) {
      const std::string parent = ParentDirectory(existing);
      if (parent == existing) break;
      existing = parent;
    }
    return existing;
  }
};

}  // namespace

FileSystem* PosixFileSystem() {
  static Posix posix;  // no state, nothing to destroy
  return &posix;
}

}  // namespace megatrain

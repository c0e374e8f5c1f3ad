// RootedFileSystem is a FileSystem that is confined to given directories and acts for an account.
// Paths are absolute and are opened only beneath the roots (RootDirectory). Each call reaches files
// with the account's rights (ScopedIdentity): the kernel itself decides what the account may read
// and write, and the account owns what is made. Files are made with mode 0640, directories with
// 0750, whatever the umask.
//
// Names are changed (rename, remove, mkdir) through the descriptor of their directory. The
// directory is resolved beneath a root first, so a symbolic link put in its place cannot lead
// elsewhere.
//
// Errors besides those of FileSystem:
// - PermissionDenied: the process may not act for the account, or a path leads out of the roots, by
//   its text, by a link or by `..`. The message does not depend on what is outside.
// - InvalidArgument: a path holds a zero byte, a name that is to be changed is a root, "." or "..",
//   or what is to be written or locked is a pipe, a socket or a device. (A directory there is
//   Internal.)
// - Unimplemented, from OpenBlockFile: it is FileSystem's default.
// - NotFound, from CreateDirectories: more than 64 directories are missing.
//
// TryLock returns null also if the name has led to another file at each of 16 tries.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_FILES_ROOTED_FILE_SYSTEM_H_
#define MEGATRAIN_SERVER_FILES_ROOTED_FILE_SYSTEM_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"
#include "engine/base/file.h"
#include "server/files/file_identity.h"
#include "server/files/root_directory.h"

namespace megatrain {

class RootedFileSystem : public FileSystem {
 public:
  using Roots = std::vector<std::shared_ptr<const RootDirectory>>;

  // Each path must lie beneath one of `roots` or, if `state_directory` is not "", in the own
  // directory (job_files.h) of a job, if that belongs to the account. If `identity` is nullopt,
  // files are reached with the process' own rights.
  RootedFileSystem(Roots roots, std::optional<FileIdentity> identity,
                   std::string state_directory = "")
      : roots_(std::move(roots)),
        identity_(std::move(identity)),
        state_directory_(std::move(state_directory)) {}

  // ---- FileSystem ----

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenBlocksForReading(
      const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveTree(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override;
  bool FileExists(const std::string& path) override;
  bool IsDirectory(const std::string& path) override;
  absl::StatusOr<FileInfo> Examine(const std::string& path) override;
  absl::StatusOr<std::string> RealPath(const std::string& path) override;
  absl::Status CheckWritable(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override;
  absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path) override;

 private:
  struct Place {
    std::shared_ptr<const RootDirectory> root;
    std::string relative;
  };
  // A name in a directory that is open.
  struct Entry {
    Descriptor directory;
    std::string name;
  };

  // Open a file under the account's identity: one to write, made or emptied, and one to read.
  absl::StatusOr<Descriptor> OpenEmptied(const std::string& path) const;
  absl::StatusOr<Descriptor> OpenToRead(const std::string& path) const;

  // The methods below are called under the account's identity.
  absl::StatusOr<Place> Find(const std::string& path) const;
  // Returns the place of `path` in a job's own directory that belongs to the account, if it lies in
  // one.
  std::optional<Place> FindInOwnDirectory(const std::string& path) const;
  absl::StatusOr<Descriptor> Open(const char* operation, const std::string& path, int flags) const;
  absl::StatusOr<Entry> OpenParent(const char* operation, const std::string& path) const;
  // Opens or makes a file, for `flags` (O_WRONLY, O_RDWR); what is there and is no file is refused.
  absl::StatusOr<Descriptor> OpenOrCreate(const char* operation, const std::string& path,
                                          int flags) const;
  // Opens `path`, or the nearest name above it that is there, whose path becomes *existing. That
  // may be a file.
  absl::StatusOr<Descriptor> OpenNearest(const std::string& path, std::string* existing) const;
  absl::Status CreateBeneath(const std::string& path, int depth) const;
  bool IsDirectoryNow(const std::string& path) const;
  absl::Status OpenError(const char* operation, const std::string& path, const RootDirectory& root,
                         int error) const;

  const Roots roots_;
  const std::optional<FileIdentity> identity_;
  const std::string state_directory_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_FILES_ROOTED_FILE_SYSTEM_H_

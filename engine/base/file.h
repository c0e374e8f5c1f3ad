// Files as the engine uses them: whole reads, positioned reads, sequential writes, and the few
// directory operations that make a write survive a power cut.
//
// All files that a job names or makes are reached through one FileSystem, so that who hands it in
// decides what the job may touch, and so that tests can put one in its place that fails at the n-th
// operation, or loses what was not synced. Errors name the operation, the path and the system's
// reason: NotFound (no such file), PermissionDenied, InvalidArgument (no name that a file can
// have), ResourceExhausted (disk full), else Internal; a file that ends too early is DataLoss.
//
// Thread safety: a FileSystem and a RandomAccessFile may be used from several threads, a
// WritableFile from one at a time.
#ifndef MEGATRAIN_ENGINE_BASE_FILE_H_
#define MEGATRAIN_ENGINE_BASE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace megatrain {

// A file being written from its start to its end. Unbuffered: see FileWriter.
class WritableFile {
 public:
  // Closes; what was not synced may be lost.
  virtual ~WritableFile() = default;
  virtual absl::Status Append(const void* data, int64_t bytes) = 0;
  // Everything appended is on stable storage when this returns.
  virtual absl::Status Sync() = 0;
  // Must be called once, after the last Append: a deferred write error shows up here.
  virtual absl::Status Close() = 0;
};

class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Reads exactly `bytes` at `offset`; DataLoss if the file ends before.
  absl::Status Read(int64_t offset, void* out, int64_t bytes) const;
  // Reads up to `bytes`, and returns how many; fewer only at the file's end, which may have moved
  // since it was opened.
  virtual absl::StatusOr<int64_t> ReadUpTo(int64_t offset, void* out, int64_t bytes) const = 0;
  // When the file was opened.
  virtual int64_t size() const = 0;
  virtual const std::string& path() const = 0;
};

// Held as long as it lives; the kernel gives it back when the process ends, however that happens.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

struct FileInfo {
  bool is_regular = false;
  bool is_directory = false;
  int64_t bytes = 0;  // a regular file's
  absl::Time modified;
  // Equal for two paths of the same file.
  uint64_t device = 0;
  uint64_t inode = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates the file or empties it. Permissions: 0666 less the umask.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(
      const std::string& path) = 0;
  // A regular file: a directory, a pipe or a device is refused.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) = 0;

  // Replaces a file `to`, and a directory `to` if it is empty.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Makes the names in `path` durable: files created, renamed or removed in it.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // With its parents; fine if it is there.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  // Fine if there is nothing. Symbolic links at `path` and beneath are removed, not followed, also
  // if somebody puts them there meanwhile. Any depth. What cannot be removed does not keep the
  // rest; the first error is returned.
  virtual absl::Status RemoveTree(const std::string& path) = 0;

  // Names in the directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) = 0;
  virtual bool FileExists(const std::string& path) = 0;  // anything of that name
  virtual bool IsDirectory(const std::string& path) = 0;
  // Of what the path leads to; symbolic links are followed.
  virtual absl::StatusOr<FileInfo> Examine(const std::string& path) = 0;
  // The same file's path without symbolic links.
  virtual absl::StatusOr<std::string> RealPath(const std::string& path) = 0;
  // Whether names can be made and removed in the directory `path`, or in the nearest existing one
  // above it. PermissionDenied, or InvalidArgument if what is there is no directory.
  virtual absl::Status CheckWritable(const std::string& path) = 0;
  // Locks the file `path`, which is made if it is missing, against other holders of such locks.
  // Null if there is one. A file system without locks locks nothing and forbids nothing.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) = 0;
  // Free to this user on the file system that holds `path`, or its nearest existing parent.
  virtual absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path) = 0;
};

// The operating system's. Lives for ever.
FileSystem* PosixFileSystem();

// Appends through a buffer and hashes what passes: the writer of every file the engine makes.
class FileWriter {
 public:
  static absl::StatusOr<std::unique_ptr<FileWriter>> Create(FileSystem* files,
                                                            const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  absl::Status Append(const void* data, int64_t bytes);
  absl::Status Append(std::string_view text) {
    return Append(text.data(), static_cast<int64_t>(text.size()));
  }
  // Flushes the buffer, syncs, closes. Nothing may follow.
  absl::Status SyncAndClose();

  int64_t bytes() const { return bytes_; }  // appended so far
  // XXH3-128 of everything appended, 32 hex digits.
  std::string Hash() const;
  const std::string& path() const { return path_; }

 private:
  struct HashState;
  FileWriter(std::string path, std::unique_ptr<WritableFile> file);
  absl::Status Flush();

  const std::string path_;
  std::unique_ptr<WritableFile> file_;
  std::unique_ptr<HashState> hash_;
  std::vector<char> buffer_;
  int64_t buffered_ = 0;
  int64_t bytes_ = 0;
};

// XXH3-128 in 32 hex digits, as FileWriter::Hash writes it.
std::string HashBytes(std::string_view bytes);
// Of a whole file, read through a buffer of a few MiB. `*bytes`, if not null, is its length.
absl::StatusOr<std::string> HashFile(FileSystem* files, const std::string& path, int64_t* bytes);

// The whole file; longer than `bytes_max` is refused as OutOfRange.
absl::StatusOr<std::string> ReadWholeFile(FileSystem* files, const std::string& path,
                                          int64_t bytes_max);
// Writes and syncs `path`, which need not be new; not atomic.
absl::Status WriteFileSynced(FileSystem* files, const std::string& path, std::string_view content);
// Writes `path`.tmp, syncs it, renames it over `path`, syncs the directory: after a crash there is
// the old content or the new.
absl::Status AtomicWriteFile(FileSystem* files, const std::string& path, std::string_view content);

// Copies and syncs. Returns the number of bytes.
absl::StatusOr<int64_t> CopyFileSynced(FileSystem* files, const std::string& from,
                                       const std::string& to);

// "a/b" of "a/b/c", "." of "c", "/" of "/c".
std::string ParentDirectory(const std::string& path);
// "a/b" of "a" and "b"; "b" if `a` is empty.
std::string JoinPath(const std::string& a, const std::string& b);

// "disk full writing PATH: N bytes ..." or "cannot OPERATION PATH: REASON", with the code that fits
// `error` (an errno). `bytes` is what was being written, or 0.
absl::Status FileError(const char* operation, const std::string& path, int error,
                       int64_t bytes = 0);

// ResourceExhausted that IsDiskFull knows: memory that does not suffice has the same code.
absl::Status DiskFullError(std::string_view message);
// Whether there was no room on a disk, or none left in a quota: waiting may help.
bool IsDiskFull(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_FILE_H_

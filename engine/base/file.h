// The file system interface of the engine: whole reads, positioned reads, sequential writes, and
// the directory operations that make a write survive a power failure.
//
// The engine reaches all files that a job names or creates through a FileSystem. The caller that
// supplies it decides which files a job may touch, and tests supply one that fails at the n-th
// operation or loses what was not synced.
//
// Errors of system calls name the operation, the path and the system's reason; others the path and
// what is wrong. The codes are these, and those that a function or an implementation documents:
// - NotFound: there is no such file or directory, or a file is where a directory must be;
// - PermissionDenied: access is refused, or the file system is read-only;
// - InvalidArgument: the path is no valid name, or a file to read is no regular file;
// - ResourceExhausted: the disk or a quota is full (see IsDiskFull);
// - DataLoss: a file ends too early;
// - Internal: any other failure.
//
// Thread safety: a FileSystem and a RandomAccessFile may be used from several threads at once, a
// WritableFile and a FileWriter from one at a time; BlockFile says its own.
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
#include "engine/base/content_hash.h"

namespace megatrain {

// A file that is written from its start to its end, without a buffer. FileWriter adds one.
class WritableFile {
 public:
  // Closes the file; content that was not synced may be lost.
  virtual ~WritableFile() = default;
  // Writes `bytes` bytes behind those appended before. After an error any part of them may be
  // there.
  virtual absl::Status Append(const void* data, int64_t bytes) = 0;
  // Returns when everything appended is on stable storage.
  virtual absl::Status Sync() = 0;
  // Completes the file. It may report a deferred write error, so call it once, after the last
  // Append or Sync. After an error of these it need not be called.
  virtual absl::Status Close() = 0;
};

// The offsets, lengths and memory of direct transfers are multiples of this: a page, which is a
// multiple of every usual sector.
inline constexpr int64_t kDirectAlignment = 4096;

// A file of a known size that is written in blocks, in any order. Where the file system allows it
// the blocks go straight to the disk, past the page cache.
//
// Thread safety: Write may be called from several threads at once.
class BlockFile {
 public:
  // Closes the file; content that was not synced may be lost.
  virtual ~BlockFile() = default;
  // Writes the block at `offset`. The last bytes of the file, if they are less than
  // kDirectAlignment, may be written by Sync instead. REQUIRES: `offset` and the address `data` are
  // multiples of kDirectAlignment, and so is `bytes` unless the block ends the file. Blocks lie
  // within the size that the file was made for, and do not overlap.
  virtual absl::Status Write(int64_t offset, const void* data, int64_t bytes) = 0;
  // Returns when everything written is on stable storage. REQUIRES: no Write runs.
  virtual absl::Status Sync() = 0;
  // Completes the file. It may report a deferred write error, so call it once, after the last Sync.
  // After an error of Write or Sync it need not be called.
  virtual absl::Status Close() = 0;
  // After Sync, returns false if blocks went through the page cache.
  virtual bool direct() const { return true; }
};

// A file that is read at any offset.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Reads exactly `bytes` bytes at `offset`; returns DataLoss if the file ends before that.
  absl::Status Read(int64_t offset, void* out, int64_t bytes) const;
  // Reads up to `bytes` bytes at `offset` and returns how many were read. That is less than `bytes`
  // only at an end of the file: the one that it has now, or size().
  virtual absl::StatusOr<int64_t> ReadUpTo(int64_t offset, void* out, int64_t bytes) const = 0;
  // The size in bytes when the file was opened.
  virtual int64_t size() const = 0;
  virtual const std::string& path() const = 0;
};

// Holds an exclusive lock on a file until it is destroyed. The kernel also releases the lock when
// the process ends, even by a crash.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

struct FileInfo {
  bool is_regular = false;
  bool is_directory = false;
  int64_t bytes = 0;    // 0 unless it is a regular file
  absl::Time modified;  // last change of the content
  absl::Time changed;   // last change of content, permissions, owner or links; set by the kernel
  // Two paths name the same file if both of these are equal.
  uint64_t device = 0;
  uint64_t inode = 0;
};

// A FileSystem must outlive the files and locks that it returns. PosixFileSystem takes relative
// paths from the process's working directory.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // ---- Opening files.
  //
  // Creates the file, or empties an existing one. PosixFileSystem gives a new file the permissions
  // 0666 less the umask.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(
      const std::string& path) = 0;
  // Creates the file, or empties an existing one, and reserves room for `bytes` bytes if the file
  // system can do that. Returns ResourceExhausted if there is not that much room; the file then
  // exists, and may have room of undefined content.
  virtual absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                                  int64_t bytes) = 0;
  // Does as NewBlockFile, but keeps the content of an existing file, and its length if it is
  // longer. Several processes can thus write parts of one file, each with the same `bytes`. The
  // default implementation returns Unimplemented.
  virtual absl::StatusOr<std::unique_ptr<BlockFile>> OpenBlockFile(const std::string& path,
                                                                   int64_t bytes);
  // Opens a regular file. Directories, pipes and devices are InvalidArgument.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) = 0;
  // Opens a regular file to be read straight from the disk, past the page cache, where the file
  // system allows that. REQUIRES of each read: offset, address and length are multiples of
  // kDirectAlignment. Read a last block that does not fill that by ReadUpTo, with a length beyond
  // the end of the file.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenBlocksForReading(
      const std::string& path) {
    return OpenForReading(path);
  }

  // ---- Changing names and directories.
  //
  // Renames atomically. A file replaces an existing file `to`, a directory an empty directory `to`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Makes the names in the directory `path` durable after files in it were created, renamed or
  // removed. On a file system that cannot sync directories it succeeds and does nothing.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Creates the directory and its missing parents; succeeds if the directory exists.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  // Removes a file or a symbolic link; NotFound if there is none.
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  // Removes `path` and everything beneath it, at any depth; succeeds if there is nothing. Symbolic
  // links at `path` and beneath are removed and not followed, even if another process creates them
  // meanwhile. An entry that cannot be removed does not stop the removal of the others; the first
  // error is returned. A path without a name of its own ("/", "a/..") is InvalidArgument.
  virtual absl::Status RemoveTree(const std::string& path) = 0;

  // ---- Asking, and locking.
  //
  // Returns the names in the directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) = 0;
  // Returns true if there is anything of that name, including a symbolic link that leads nowhere.
  // Returns false also if `path` cannot be examined.
  virtual bool FileExists(const std::string& path) = 0;
  // Follows symbolic links. Returns false also if `path` cannot be examined.
  virtual bool IsDirectory(const std::string& path) = 0;
  // Describes the file that `path` leads to; symbolic links are followed.
  virtual absl::StatusOr<FileInfo> Examine(const std::string& path) = 0;
  // Returns the absolute path of the same file without symbolic links.
  virtual absl::StatusOr<std::string> RealPath(const std::string& path) = 0;
  // Checks that names can be created and removed in the directory `path`, or in its nearest
  // existing parent. Returns PermissionDenied if not, InvalidArgument if what exists is not a
  // directory.
  virtual absl::Status CheckWritable(const std::string& path) = 0;
  // Locks the file `path` without waiting, creating it if it is missing. Returns null if another
  // holder has the lock, also one in this process. On a file system without locks the call succeeds
  // and locks nothing.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) = 0;
  // Returns the bytes free to this user on the file system that holds `path` or its nearest
  // existing parent.
  virtual absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path) = 0;
};

// Returns the operating system's file system, which lives as long as the process.
FileSystem* PosixFileSystem();

// Writes a new file through a buffer and hashes its content on the way.
class FileWriter {
 public:
  // Creates or empties `path`. `files` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<FileWriter>> Create(FileSystem* files,
                                                            const std::string& path);
  // Drops what is still in the buffer: call SyncAndClose to complete the file.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Adds bytes to the buffer, and writes the buffer when it is full. After an error the file is
  // incomplete, and only the destructor may follow.
  absl::Status Append(const void* data, int64_t bytes);
  absl::Status Append(std::string_view text) {
    return Append(text.data(), static_cast<int64_t>(text.size()));
  }
  // Flushes the buffer, syncs and closes the file, but does not sync its directory. Call it once;
  // no Append may follow. After an error the file may be incomplete.
  absl::Status SyncAndClose();

  int64_t bytes() const { return bytes_; }  // appended so far
  // Returns the XXH3-128 of everything appended so far, as 32 hex digits.
  std::string Hash() const { return hash_.Hex(); }
  const std::string& path() const { return path_; }

 private:
  FileWriter(std::string path, std::unique_ptr<WritableFile> file);
  absl::Status Flush();

  const std::string path_;
  std::unique_ptr<WritableFile> file_;
  ContentHash hash_;
  std::vector<char> buffer_;
  int64_t buffered_ = 0;
  int64_t bytes_ = 0;
};

// Returns the XXH3-128 of `bytes` as 32 hex digits, the form of FileWriter::Hash.
std::string HashBytes(std::string_view bytes);
// Returns the XXH3-128 of a whole file, reading it in pieces of a few MiB. If `bytes` is not null,
// it receives the file's length.
absl::StatusOr<std::string> HashFile(FileSystem* files, const std::string& path, int64_t* bytes);

// Returns the file's content. Returns OutOfRange if it is longer than `bytes_max`.
absl::StatusOr<std::string> ReadWholeFile(FileSystem* files, const std::string& path,
                                          int64_t bytes_max);
// Writes `content` to `path`, replacing what was there, and syncs the file, but not its directory.
// It is not atomic: after a crash the file may hold a part.
absl::Status WriteFileSynced(FileSystem* files, const std::string& path, std::string_view content);
// Writes `path`.tmp, syncs it, renames it over `path` and syncs the directory. After a crash `path`
// holds either the old content or the new. After an error it holds the old, unless only the sync of
// the directory failed, and `path`.tmp may remain. REQUIRES: one caller at a time for each `path`.
absl::Status AtomicWriteFile(FileSystem* files, const std::string& path, std::string_view content);

// Copies the content of `from` to `to` as WriteFileSynced writes it. Returns the number of bytes.
// REQUIRES: they are different files. After an error `to` may hold a part.
absl::StatusOr<int64_t> CopyFileSynced(FileSystem* files, const std::string& from,
                                       const std::string& to);

// "a/b/c" -> "a/b", "a/b/" -> "a", "c" -> ".", "/c" -> "/", "/" -> "/".
std::string ParentDirectory(const std::string& path);
// ("a", "b") -> "a/b", ("a/", "b") -> "a/b", ("", "b") -> "b", ("a", "/b") -> "a//b".
std::string JoinPath(const std::string& a, const std::string& b);

// Makes the status for a failed system call; `error` is its errno and selects the code as listed
// above. The message is "cannot OPERATION PATH: REASON", or for a full disk "disk full ...", with
// `bytes` as the amount that did not fit unless it is 0.
absl::Status FileError(const char* operation, const std::string& path, int error,
                       int64_t bytes = 0);

// Makes a ResourceExhausted status that IsDiskFull recognizes. The mark is needed because lack of
// memory has the same code.
absl::Status DiskFullError(std::string_view message);
// Returns true if the operation failed because a disk or a quota was full, so that waiting may
// help.
bool IsDiskFull(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_FILE_H_

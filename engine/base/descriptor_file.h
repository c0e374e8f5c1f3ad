// Builds the objects of file.h from file descriptors that are already open. The file systems that
// open their files by system calls share these functions.
//
// Direct transfers use O_DIRECT. A file whose file system refuses it, when it is set (fcntl) or at
// a transfer (EINVAL of read and write), is used through the page cache from then on.
//
// Each function takes ownership of `fd` and closes it, also when it fails; the file and lock
// objects close theirs when they are destroyed. `path` is used in error messages, and is
// RandomAccessFile::path() of a file that is read. Errors have the codes of FileError (file.h).
#ifndef MEGATRAIN_ENGINE_BASE_DESCRIPTOR_FILE_H_
#define MEGATRAIN_ENGINE_BASE_DESCRIPTOR_FILE_H_

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// Returns a file that appends at the present position of `fd`. REQUIRES: `fd` is open for writing.
std::unique_ptr<WritableFile> WriteThrough(const std::string& path, int fd);
// Returns a file for `bytes` bytes, written directly. Reserves room for them if the file system can
// do that. Returns ResourceExhausted (IsDiskFull) if there is not that much. REQUIRES: `fd` is open
// for writing.
absl::StatusOr<std::unique_ptr<BlockFile>> WriteBlocksThrough(const std::string& path, int fd,
                                                              int64_t bytes);
// Returns a file that reads `fd` at any offset. Returns InvalidArgument unless `fd` is a regular
// file. With `direct` reads go past the page cache where the file system allows it, and must be
// aligned as FileSystem::OpenBlocksForReading says. REQUIRES: `fd` is open for reading.
absl::StatusOr<std::unique_ptr<RandomAccessFile>> ReadThrough(const std::string& path, int fd,
                                                              bool direct = false);
// Makes the names in the directory `fd` durable. Succeeds without doing anything on file systems
// that cannot sync a directory. REQUIRES: `fd` is open for reading.
absl::Status SyncDirectoryThrough(const std::string& path, int fd);
// Returns the names in the directory, sorted, without "." and "..". Returns NotFound if `fd` is no
// directory. REQUIRES: `fd` is open for reading, and its names were not read before.
absl::StatusOr<std::vector<std::string>> ListThrough(const std::string& path, int fd);
// Locks the file with flock(2) without waiting. Returns null if another open file holds the lock.
// Where the file system has no locks the result locks nothing.
std::unique_ptr<FileLock> TryLockThrough(int fd);

// Converts the result of stat(2).
FileInfo InfoOf(const struct stat& info);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_DESCRIPTOR_FILE_H_

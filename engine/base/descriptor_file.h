// What file.h speaks of over descriptors that are open already: what file systems of the operating
// system share. `path` is for messages. Each call takes the descriptor and closes it, also when it
// fails.
#ifndef MEGATRAIN_ENGINE_BASE_DESCRIPTOR_FILE_H_
#define MEGATRAIN_ENGINE_BASE_DESCRIPTOR_FILE_H_

#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

std::unique_ptr<WritableFile> WriteThrough(const std::string& path, int fd);
// InvalidArgument unless it is a regular file.
absl::StatusOr<std::unique_ptr<RandomAccessFile>> ReadThrough(const std::string& path, int fd);
absl::Status SyncDirectoryThrough(const std::string& path, int fd);
absl::StatusOr<std::vector<std::string>> ListThrough(const std::string& path, int fd);
// Null if another holds the lock.
std::unique_ptr<FileLock> TryLockThrough(int fd);

FileInfo InfoOf(const struct stat& info);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_DESCRIPTOR_FILE_H_

// Reads small files of a model directory.
#ifndef MEGATRAIN_ENGINE_BASE_DIRECTORIES_MODEL_DIRECTORY_FILE_H_
#define MEGATRAIN_ENGINE_BASE_DIRECTORIES_MODEL_DIRECTORY_FILE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// Returns the content of directory/name, or nullopt if there is no such file or directory. Returns
// InvalidArgument for more than 256 MiB and for anything but a regular file, and otherwise the
// error of `files`. Messages name the path.
absl::StatusOr<std::optional<std::string>> ReadModelDirectoryFile(
    const std::string& directory, const std::string& name, FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_DIRECTORIES_MODEL_DIRECTORY_FILE_H_

// Small files of a model directory, read whole.
#ifndef MEGATRAIN_ENGINE_BASE_MODEL_DIRECTORY_FILE_H_
#define MEGATRAIN_ENGINE_BASE_MODEL_DIRECTORY_FILE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// The content of directory/name, nothing if there is no such file. Files over 256 MiB and what
// cannot be read are an error that names the path.
absl::StatusOr<std::optional<std::string>> ReadModelDirectoryFile(
    const std::string& directory, const std::string& name, FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_MODEL_DIRECTORY_FILE_H_

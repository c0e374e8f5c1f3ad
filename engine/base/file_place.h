// Tells where a file lies, for the relative paths that are written in it.
#ifndef MEGATRAIN_ENGINE_BASE_FILE_PLACE_H_
#define MEGATRAIN_ENGINE_BASE_FILE_PLACE_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// Returns the absolute path of the directory in which the file `path` is named, without "." and
// "..". Symbolic links in it stay, unless ".." follows one and removing both as text would name
// another directory: then the path has no links. Returns Internal if the working directory is
// needed and not known.
absl::StatusOr<std::string> DirectoryOfFile(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_FILE_PLACE_H_

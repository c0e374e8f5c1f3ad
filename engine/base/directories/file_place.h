// Tells where a file lies, for the relative paths that are written in it.
#ifndef MEGATRAIN_ENGINE_BASE_DIRECTORIES_FILE_PLACE_H_
#define MEGATRAIN_ENGINE_BASE_DIRECTORIES_FILE_PLACE_H_

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

// Returns the absolute path of the directory in which the file `path` is named, without "." and
// "..". Symbolic links in it stay, unless ".." follows one and removing both as text would name
// another directory: then the path has no links. Returns Internal if the working directory is
// needed and not known.
inline absl::StatusOr<std::string> DirectoryOfFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) return absl::InternalError(absl::StrCat(path, ": ", error.message()));
  const fs::path directory = absolute.parent_path();
  const fs::path as_text = absolute.lexically_normal().parent_path();
  if (fs::equivalent(directory, as_text, error)) return as_text.string();
  const fs::path real = fs::canonical(directory, error);
  return error ? as_text.string() : real.string();
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_DIRECTORIES_FILE_PLACE_H_

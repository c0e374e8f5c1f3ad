#include "engine/base/file_place.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace megatrain {

absl::StatusOr<std::string> DirectoryOfFile(const std::string& path) {
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

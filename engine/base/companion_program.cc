#include "engine/base/companion_program.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

absl::StatusOr<std::string> CompanionProgram(const std::string& name, const char* variable) {
  std::string path;
  if (const char* const named = std::getenv(variable); named != nullptr && *named != '\0') {
    path = named;
  } else {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return absl::NotFoundError(absl::StrCat("/proc/self/exe: ", error.message()));
    path = self.parent_path() / name;
  }
  if (::access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(absl::StrCat("there is no program ", path));
}

}  // namespace megatrain

#include "engine/data/model_directory_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace megatrain {

absl::StatusOr<std::optional<std::string>> ReadModelDirectoryFile(const std::string& directory,
                                                                  const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(directory) / name;
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (error) return absl::UnavailableError(absl::StrCat(path.string(), ": ", error.message()));
  if (status.type() != std::filesystem::file_type::regular) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a regular file"));
  }
  constexpr uintmax_t kBytesMax = uintmax_t{256} << 20;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::UnavailableError(absl::StrCat(path.string(), ": ", error.message()));
  if (size > kBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), ": ", size, " bytes, more than ", kBytesMax));
  }
  std::ifstream file(path, std::ios::binary);
  std::string content(size, '\0');
  if (!file.read(content.data(), static_cast<std::streamsize>(size)) && size > 0) {
    return absl::UnavailableError(
        absl::StrCat(path.string(), ": cannot be read: ", std::strerror(errno)));
  }
  return content;
}

}  // namespace megatrain

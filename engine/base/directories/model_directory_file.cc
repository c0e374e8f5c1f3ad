#include "engine/base/directories/model_directory_file.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {

absl::StatusOr<std::optional<std::string>> ReadModelDirectoryFile(const std::string& directory,
                                                                  const std::string& name,
                                                                  FileSystem* files) {
  constexpr int64_t kBytesMax = int64_t{256} << 20;
  const std::string path = JoinPath(directory, name);
  const absl::StatusOr<FileInfo> info = files->Examine(path);
  if (absl::IsNotFound(info.status())) return std::nullopt;
  if (!info.ok()) return info.status();
  if (!info->is_regular) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  if (info->bytes > kBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", info->bytes, " bytes, more than ", kBytesMax));
  }
  MT_ASSIGN_OR_RETURN(std::string content, ReadWholeFile(files, path, kBytesMax));
  return content;
}

}  // namespace megatrain

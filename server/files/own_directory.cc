#include "server/files/own_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "server/files/file_identity.h"
#include "server/files/job_files.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

// Whose the directory is, unless it is the daemon's. NotFound if there is no directory.
absl::StatusOr<std::optional<FileIdentity>> OwnerOf(const std::string& directory) {
  struct stat info;
  if (::lstat(directory.c_str(), &info) != 0) return FileError("examine", directory, errno);
  // A link that stands in its place leads to what is not the job's.
  if (!S_ISDIR(info.st_mode)) {
    return absl::NotFoundError(absl::StrCat(directory, " is not a directory"));
  }
  if (info.st_uid == ::geteuid()) return std::nullopt;
  FileIdentity owner;
  owner.uid = info.st_uid;
  owner.gid = info.st_gid;
  owner.groups = {info.st_gid};
  return owner;
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator at(directory, error);
  while (!error && at != fs::directory_iterator()) {
    names.push_back(at->path().filename());
    at.increment(error);
  }
  if (error) return FileError("list", directory, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

int64_t DirectoryBytes(const std::string& directory) {
  int64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied,
                                      error);
  while (!error && at != fs::recursive_directory_iterator()) {
    std::error_code of_file;  // it may be removed under our eyes
    if (fs::is_regular_file(at->symlink_status(of_file))) {
      const std::uintmax_t size = at->file_size(of_file);
      if (!of_file) bytes += static_cast<int64_t>(size);
    }
    at.increment(error);
  }
  return bytes;
}

int64_t JobDirectoryBytes(const std::string& state_directory, const std::string& job_id) {
  const std::string own = OwnCheckpointDirectory(state_directory, job_id);
  const int64_t visible = DirectoryBytes(ParentDirectory(own));
  const absl::StatusOr<std::optional<FileIdentity>> owner = OwnerOf(own);
  if (!owner.ok() || !owner->has_value()) return visible;
  const int64_t visible_of_own = DirectoryBytes(own);  // all, if the daemon is root
  const ScopedIdentity identity(&**owner);
  if (!identity.status().ok()) return visible;
  return visible - visible_of_own + DirectoryBytes(own);
}

absl::StatusOr<std::vector<std::string>> ListOwnDirectory(const std::string& state_directory,
                                                          const std::string& job_id) {
  const std::string own = OwnCheckpointDirectory(state_directory, job_id);
  const absl::StatusOr<std::optional<FileIdentity>> owner = OwnerOf(own);
  if (absl::IsNotFound(owner.status())) return std::vector<std::string>();
  if (!owner.ok()) return owner.status();
  const ScopedIdentity identity(owner->has_value() ? &**owner : nullptr);
  MT_RETURN_IF_ERROR(identity.status());
  return NamesIn(own);
}

absl::Status EmptyOwnDirectory(const std::string& state_directory, const std::string& job_id) {
  const std::string own = OwnCheckpointDirectory(state_directory, job_id);
  const absl::StatusOr<std::optional<FileIdentity>> owner = OwnerOf(own);
  if (absl::IsNotFound(owner.status())) return absl::OkStatus();
  if (!owner.ok()) return owner.status();
  const ScopedIdentity identity(owner->has_value() ? &**owner : nullptr);
  MT_RETURN_IF_ERROR(identity.status());
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(own));
  for (const std::string& name : names) {
    std::error_code error;
    fs::remove_all(fs::path(own) / name, error);  // symbolic links are removed, not followed
    if (error) return FileError("remove", JoinPath(own, name), error.value());
  }
  return absl::OkStatus();
}

}  // namespace megatrain

#include "server/files/own_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "engine/base/descriptor.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "server/files/file_identity.h"
#include "server/files/job_files.h"

namespace megatrain {
namespace {

// A job's directory, in which nobody but the daemon changes names.
struct JobPlace {
  std::string own_path;
  std::string own_name;               // in `directory`
  Descriptor directory;               // not open: there is none
  bool has_own = false;               // a directory, no link
  std::optional<FileIdentity> owner;  // of the own directory, if it is not the daemon's

  // Under the owner's identity. Not open, with errno, if he may not read it.
  Descriptor OpenOwn() const { return OpenDirectoryAt(directory.get(), own_name.c_str()); }
};

absl::StatusOr<JobPlace> FindJob(const std::string& state_directory, const std::string& job_id) {
  JobPlace place;
  place.own_path = OwnCheckpointDirectory(state_directory, job_id);
  place.own_name = place.own_path.substr(place.own_path.rfind('/') + 1);
  const std::string path = ParentDirectory(place.own_path);
  place.directory = OpenDirectoryAt(AT_FDCWD, path.c_str());
  if (!place.directory.is_open()) {
    if (errno == ENOENT) return place;
    return FileError("open", path, errno);
  }
  struct stat info;
  if (::fstatat(place.directory.get(), place.own_name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return place;
    return FileError("examine", place.own_path, errno);
  }
  // A link that stands in its place leads to what is not the job's.
  place.has_own = S_ISDIR(info.st_mode);
  if (place.has_own && info.st_uid != ::geteuid()) {
    place.owner.emplace();
    place.owner->uid = info.st_uid;
    place.owner->gid = info.st_gid;
    place.owner->groups = {info.st_gid};
  }
  return place;
}

}  // namespace

std::string JobOfOwnDirectory(const std::string& state_directory, std::string_view path) {
  const std::string jobs = state_directory + "/jobs/";
  if (!path.starts_with(jobs)) return "";
  const std::string id(path.substr(jobs.size(), path.find('/', jobs.size()) - jobs.size()));
  const std::string own = OwnCheckpointDirectory(state_directory, id);
  const bool beneath = path == own || path.starts_with(own + "/");
  return beneath && !id.empty() && id.find('.') == std::string::npos ? id : "";
}

TreeSize MeasureJobDirectory(const std::string& state_directory, const std::string& job_id) {
  absl::StatusOr<JobPlace> place = FindJob(state_directory, job_id);
  if (!place.ok() || !place->directory.is_open()) return {};
  TreeSize own;
  if (place->owner.has_value()) {
    const ScopedIdentity identity(&*place->owner);
    Descriptor directory;
    if (identity.status().ok()) directory = place->OpenOwn();
    if (directory.is_open()) {
      own = MeasureTree(std::move(directory));
    } else {
      own.whole = false;
    }
  }
  const TreeSize rest = MeasureTree(std::move(place->directory),
                                    place->owner.has_value() ? place->own_name : std::string());
  return {.bytes = own.bytes + rest.bytes, .whole = own.whole && rest.whole};
}

absl::StatusOr<bool> OwnDirectoryHas(const std::string& state_directory, const std::string& job_id,
                                     std::string_view prefix) {
  MT_ASSIGN_OR_RETURN(const JobPlace place, FindJob(state_directory, job_id));
  if (!place.has_own) return false;
  const ScopedIdentity identity(place.owner.has_value() ? &*place.owner : nullptr);
  MT_RETURN_IF_ERROR(identity.status());
  Descriptor directory = place.OpenOwn();
  if (!directory.is_open()) return FileError("list", place.own_path, errno);
  DirectoryReader reader(std::move(directory));
  while (const char* name = reader.Next()) {
    if (std::string_view(name).substr(0, prefix.size()) == prefix) return true;
  }
  if (reader.error() != 0) return FileError("list", place.own_path, reader.error());
  return false;
}

absl::Status RemoveOwnDirectory(const std::string& state_directory, const std::string& job_id,
                                const std::function<bool()>& cancelled) {
  MT_ASSIGN_OR_RETURN(const JobPlace place, FindJob(state_directory, job_id));
  if (!place.has_own) return absl::OkStatus();
  {
    const ScopedIdentity identity(place.owner.has_value() ? &*place.owner : nullptr);
    MT_RETURN_IF_ERROR(identity.status());
    Descriptor directory = place.OpenOwn();
    if (!directory.is_open()) return FileError("remove", place.own_path, errno);
    MT_RETURN_IF_ERROR(EmptyDirectory(std::move(directory), place.own_path, cancelled));
  }
  if (::unlinkat(place.directory.get(), place.own_name.c_str(), AT_REMOVEDIR) != 0) {
    return FileError("remove", place.own_path, errno);
  }
  return absl::OkStatus();
}

}  // namespace megatrain

#include "server/files/job_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/descriptor.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// On the way to a job's own directory: passed through, not read.
constexpr mode_t kWayMode = 0711;
constexpr mode_t kOwnMode = 0750;

// The directory `name` in `parent`, made if it is missing, with `mode` unless it is another's to
// set. Nobody but the daemon changes names in `parent`.
absl::StatusOr<Descriptor> MakeDirectory(const Descriptor& parent, const std::string& name,
                                         const std::string& path, mode_t mode, struct stat* info) {
  if (::mkdirat(parent.get(), name.c_str(), mode) != 0 && errno != EEXIST) {
    return FileError("create", path, errno);
  }
  Descriptor directory(
      ::openat(parent.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.is_open() || ::fstat(directory.get(), info) != 0) {
    return FileError("open", path, errno);
  }
  if (info->st_uid == ::geteuid() && (info->st_mode & 0777) != mode &&
      ::fchmodat(parent.get(), name.c_str(), mode, 0) != 0) {
    return FileError("set the mode of", path, errno);
  }
  return directory;
}

// Nothing: the account is the daemon's own.
absl::StatusOr<std::optional<FileIdentity>> IdentityOf(int64_t uid) {
  if (uid == static_cast<int64_t>(::geteuid())) return std::nullopt;
  const std::string missing = MissingCapabilities();
  if (!missing.empty()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the daemon runs as user id ", ::geteuid(), " and may not act for user id ", uid,
        ": it lacks ", missing, "; jobs of several users need the daemon as a service"));
  }
  MT_ASSIGN_OR_RETURN(FileIdentity identity, LookUpIdentity(uid));
  return identity;
}

}  // namespace

std::string OwnCheckpointDirectory(const std::string& state_directory, const std::string& job_id) {
  return absl::StrCat(state_directory, "/jobs/", job_id, "/checkpoints");
}

absl::StatusOr<std::unique_ptr<JobFiles>> JobFiles::Open(const std::string& state_directory,
                                                         const std::vector<std::string>& roots) {
  RootedFileSystem::Roots opened;
  for (const std::string& path : roots.empty() ? std::vector<std::string>{"/"} : roots) {
    absl::StatusOr<std::shared_ptr<const RootDirectory>> root = RootDirectory::Open(path);
    if (!root.ok()) {
      const absl::Status& status = root.status();
      return absl::Status(
          status.code(),
          absl::StrCat("roots: ", status.message(),
                       absl::IsNotFound(status)
                           ? "; make the directory, mount it, or name others that are there"
                           : ""));
    }
    opened.push_back(*std::move(root));
  }
  return std::unique_ptr<JobFiles>(new JobFiles(state_directory, std::move(opened)));
}

absl::Status JobFiles::MakeOwnDirectory(const std::string& job_id,
                                        const std::optional<FileIdentity>& identity) const {
  const std::string path = OwnCheckpointDirectory(state_directory_, job_id);
  const Descriptor state(::open(state_directory_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!state.is_open()) return FileError("open", state_directory_, errno);
  struct stat info;
  if (::fstat(state.get(), &info) != 0) return FileError("examine", state_directory_, errno);
  // A private daemon's, which now has a job of another's.
  if (identity.has_value() && info.st_uid == ::geteuid() && (info.st_mode & S_IXOTH) == 0 &&
      ::chmod(state_directory_.c_str(), (info.st_mode & 07777) | S_IXGRP | S_IXOTH) != 0) {
    return FileError("set the mode of", state_directory_, errno);
  }
  MT_ASSIGN_OR_RETURN(const Descriptor jobs, MakeDirectory(state, "jobs", path, kWayMode, &info));
  MT_ASSIGN_OR_RETURN(const Descriptor job, MakeDirectory(jobs, job_id, path, kWayMode, &info));
  MT_ASSIGN_OR_RETURN(const Descriptor own,
                      MakeDirectory(job, "checkpoints", path, kOwnMode, &info));
  if (identity.has_value() && info.st_uid == ::geteuid() &&
      ::fchownat(job.get(), "checkpoints", identity->uid, identity->gid, AT_SYMLINK_NOFOLLOW) !=
          0) {
    return FileError("give its submitter", path, errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<FileSystem>> JobFiles::Join(
    const std::string& job_id, std::optional<FileIdentity> identity) const {
  RootedFileSystem::Roots roots = roots_;
  if (!job_id.empty()) {
    // Missing before the first run.
    absl::StatusOr<std::shared_ptr<const RootDirectory>> own =
        RootDirectory::Open(OwnCheckpointDirectory(state_directory_, job_id));
    if (!own.ok() && !absl::IsNotFound(own.status())) return own.status();
    if (own.ok()) roots.push_back(*std::move(own));
  }
  return std::make_shared<RootedFileSystem>(std::move(roots), std::move(identity),
                                            state_directory_);
}

absl::StatusOr<std::shared_ptr<FileSystem>> JobFiles::OpenFor(int64_t uid,
                                                              const std::string& job_id) const {
  MT_ASSIGN_OR_RETURN(std::optional<FileIdentity> identity, IdentityOf(uid));
  return Join(job_id, std::move(identity));
}

absl::StatusOr<std::shared_ptr<FileSystem>> JobFiles::PrepareForRun(
    int64_t uid, const std::string& job_id) const {
  MT_ASSIGN_OR_RETURN(std::optional<FileIdentity> identity, IdentityOf(uid));
  MT_RETURN_IF_ERROR(MakeOwnDirectory(job_id, identity));
  return Join(job_id, std::move(identity));
}

}  // namespace megatrain

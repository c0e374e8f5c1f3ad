// JobFiles opens what jobs may touch on this machine: the configured roots and each job's own
// directory, with the rights of the account that submitted it.
//
// A job's own directory, STATE/jobs/ID/checkpoints, belongs to its submitter, who may enter it by
// its name; the directories above it can be passed through and not read, and what else is in them
// (records) stays the daemon's.
//
// The daemon's own user is itself and needs no right beyond its own. For others it needs
// CAP_SETUID, CAP_SETGID and CAP_CHOWN. uid 0 is an account like others, without root's right to
// override permissions, unless the daemon itself is root.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_FILES_JOB_FILES_H_
#define MEGATRAIN_SERVER_FILES_JOB_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "server/files/file_identity.h"
#include "server/files/rooted_file_system.h"

namespace megatrain {

// Returns the directory for the checkpoints of a job whose file does not place them:
// "STATE/jobs/ID/checkpoints".
std::string OwnCheckpointDirectory(const std::string& state_directory, const std::string& job_id);

class JobFiles {
 public:
  // Opens the roots, which are absolute paths. Without roots each account may name what the machine
  // lets it reach. NotFound if a root is not there; InvalidArgument if it is not a directory;
  // Unimplemented if the kernel cannot keep paths beneath it; FileError's codes otherwise.
  static absl::StatusOr<std::unique_ptr<JobFiles>> Open(const std::string& state_directory,
                                                        const std::vector<std::string>& roots);

  // Returns the file system that OpenFiles describes. Looks up the account anew. PermissionDenied
  // if the daemon may not act for it; NotFound if there is no such account; Unavailable if the
  // account database cannot be read; RootDirectory::Open's errors for the job's own directory,
  // which may be missing. The file system may outlive this object.
  absl::StatusOr<std::shared_ptr<FileSystem>> Of(int64_t uid, const std::string& job_id) const;
  // Does the same as Of. Before that it makes the job's own directory if it is missing, gives it to
  // the account, and lets others pass through the directories above it. FileError's codes if that
  // fails. REQUIRES: `job_id` is not empty.
  absl::StatusOr<std::shared_ptr<FileSystem>> ForRun(int64_t uid, const std::string& job_id) const;

 private:
  JobFiles(std::string state_directory, RootedFileSystem::Roots roots)
      : state_directory_(std::move(state_directory)), roots_(std::move(roots)) {}
  absl::Status MakeOwnDirectory(const std::string& job_id,
                                const std::optional<FileIdentity>& identity) const;
  absl::StatusOr<std::shared_ptr<FileSystem>> Join(const std::string& job_id,
                                                   std::optional<FileIdentity> identity) const;

  const std::string state_directory_;
  const RootedFileSystem::Roots roots_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_FILES_JOB_FILES_H_

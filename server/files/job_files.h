// JobFiles opens what jobs may touch on this machine: the configured roots and each job's own
// directory, with the rights of the account that submitted it.
//
// A job's own directory, STATE/jobs/ID/checkpoints, belongs to its submitter, who reaches it by its
// path. Others can pass through STATE/jobs and STATE/jobs/ID but not list them. Everything else in
// them (records) belongs to the daemon.
//
// The daemon needs no capability to act for its own user. To act for other accounts it needs
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
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "server/files/file_identity.h"
#include "server/files/rooted_file_system.h"

namespace megatrain {

// Returns the path of a job's own directory, STATE/jobs/ID/checkpoints. It holds the checkpoints of
// a job whose file names no directory for them.
std::string OwnCheckpointDirectory(const std::string& state_directory, const std::string& job_id);

class JobFiles {
 public:
  // Opens the roots. Without roots each account may name what the machine lets it reach. Returns
  // NotFound if a root is not there, InvalidArgument if it is not a directory, Unimplemented if the
  // kernel cannot keep paths beneath it, and otherwise FileError's codes. REQUIRES: all paths are
  // absolute.
  static absl::StatusOr<std::unique_ptr<JobFiles>> Open(const std::string& state_directory,
                                                        const std::vector<std::string>& roots);

  // Returns the file system that OpenFiles describes; it may outlive this object. It does not reach
  // the job's own directory if that is missing now. Looks up the account anew, unless it is the
  // daemon's own, and may wait for that (LookUpIdentity). Returns PermissionDenied if the daemon
  // may not act for the account, NotFound if there is none, Unavailable if the account database
  // cannot be read, and the other errors of RootDirectory::Open for the job's own directory.
  // REQUIRES: `job_id` is empty or one path component.
  absl::StatusOr<std::shared_ptr<FileSystem>> OpenFor(int64_t uid, const std::string& job_id) const;
  // Does as OpenFor, but first makes the job's own directory if it is missing, gives it to the
  // account, and lets the account pass through STATE, STATE/jobs and STATE/jobs/ID. It changes only
  // directories that the daemon owns. Returns the errors of OpenFor, and the codes of FileError if
  // making the directory fails. REQUIRES: `job_id` is one path component.
  absl::StatusOr<std::shared_ptr<FileSystem>> PrepareForRun(int64_t uid,
                                                            const std::string& job_id) const;

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

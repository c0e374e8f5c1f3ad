// Parses submitted job files and checks their paths.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_PATHS_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_PATHS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/job/job_spec.h"
#include "server/jobs/job.h"

namespace megatrain {

// Returns the directory in which the daemon keeps what belongs to a job: "STATE_DIRECTORY/jobs/ID".
std::string JobDirectory(const std::string& state_directory, const std::string& id);

// Parses the file of the job `id`. An empty checkpoint.directory becomes "checkpoints" in the job's
// JobDirectory. Returns InvalidArgument (INVALID_JOB_FILE) if the file is wrong, and
// InvalidArgument (INVALID_FIELD) if base_directory is given and not absolute.
absl::StatusOr<JobSpec> ParseJob(const JobFile& file, const std::string& state_directory,
                                 const std::string& id);

// Returns true if the job's checkpoint.directory lies beneath `job_directory`, its JobDirectory.
bool WritesInOwnDirectory(const JobSpec& spec, const std::string& job_directory);

// Sets Job::spec, own_checkpoints and checkpoints_with of the job, whose id is set.
void SetSpec(JobSpec spec, const std::string& state_directory, Job* job);

// Checks that model.path is a directory, that CheckDataFiles (data_paths.h) accepts data.train and
// data.eval, and that the job may write where it writes. `files` must act with the rights of the
// job's submitter. Nothing but checkpoints is written into a job's own directory. A
// checkpoint.directory beneath `job_directory`, the job's JobDirectory, is not
// checked, because it is made when the job begins. Returns PermissionDenied (NOT_PERMITTED) if
// access is refused or a path is outside the daemon's roots, and InvalidArgument (INVALID_JOB_FILE)
// for everything else. The message names the key, the path and what is wrong with it.
absl::Status CheckPaths(const JobSpec& spec, const std::string& job_directory, FileSystem* files);

// Returns InvalidArgument if `path` lies in a job's own directory (JobOfOwnDirectory).
absl::Status CheckIsNoOwnDirectory(const std::string& state_directory, const std::string& path);

// Checks that names in the parent of `directory` can be created and removed, and that `directory`
// is a directory or not there. Returns InvalidArgument if something else of that name is there, the
// errors of FileSystem::CheckWritable, and those of FileSystem::Examine except NotFound.
absl::Status CheckPlaceOfDirectory(const std::string& directory, FileSystem* files);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_PATHS_H_

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

// Parses the file. An empty checkpoint.directory becomes "checkpoints" in the JobDirectory.
// InvalidArgument with the reason INVALID_JOB_FILE, or INVALID_FIELD if base_directory is not
// absolute.
absl::StatusOr<JobSpec> ParseJob(const JobFile& file, const std::string& state_directory,
                                 const std::string& id);

// Returns true if the job's checkpoint.directory lies beneath its JobDirectory.
bool WritesInOwnDirectory(const JobSpec& spec, const std::string& state_directory,
                          const std::string& id);

// Checks through `files` that the job's submitter may read what the job reads and write where it
// writes. A checkpoint.directory beneath `own_directory`, which is JobDirectory, is not checked: it
// is made when the job begins. Errors name the key, the path and what is wrong with it:
// PermissionDenied, reason NOT_PERMITTED, also for what is outside the daemon's roots;
// InvalidArgument, reason INVALID_JOB_FILE.
absl::Status CheckPaths(const JobSpec& spec, const std::string& own_directory, FileSystem* files);

// Checks that `directory` can be made, or is there and may be replaced. InvalidArgument if
// something else of that name is there; other errors as FileSystem::CheckWritable's.
absl::Status CheckPlaceOfDirectory(const std::string& directory, FileSystem* files);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_PATHS_H_

// From a submitted job file to a spec.
#ifndef MEGATRAIN_SERVER_MANAGER_SUBMISSION_H_
#define MEGATRAIN_SERVER_MANAGER_SUBMISSION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/job/job_spec.h"
#include "server/jobs/job.h"

namespace megatrain {

// What the daemon keeps of a job: "STATE_DIRECTORY/jobs/ID".
std::string JobDirectory(const std::string& state_directory, const std::string& id);

// Parses the file. checkpoint.directory, if it names none, becomes "checkpoints" in the job's own
// directory. InvalidArgument, reason INVALID_JOB_FILE or INVALID_FIELD.
absl::StatusOr<JobSpec> ParseJob(const JobFile& file, const std::string& state_directory,
                                 const std::string& id);

// Whether its checkpoints are in the job's own directory.
bool WritesInOwnDirectory(const JobSpec& spec, const std::string& state_directory,
                          const std::string& id);

// The job's submitter may read what the job reads and write where it writes, by `files`.
// `own_directory` is JobDirectory. Errors name the key, the path and what is wrong with it:
// PermissionDenied, reason NOT_PERMITTED, also for what is outside the daemon's roots;
// InvalidArgument, reason INVALID_JOB_FILE.
absl::Status CheckPaths(const JobSpec& spec, const std::string& own_directory, FileSystem* files);

// A directory of that name can be made, or written anew, beside its neighbours.
absl::Status CheckPlaceOfDirectory(const std::string& directory, FileSystem* files);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_SUBMISSION_H_

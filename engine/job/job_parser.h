// Parses job files: YAML and overrides in, a checked JobSpec out.
//
// Errors are those of ReadConfig (engine/config/config_reader.h): InvalidArgument with the place
// and the key.
#ifndef MEGATRAIN_ENGINE_JOB_JOB_PARSER_H_
#define MEGATRAIN_ENGINE_JOB_JOB_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Reads the job file at `path` and applies overrides such as "training.steps=50" (see ReadConfig).
// Paths in the result are absolute, or empty if not given. Relative ones, in overrides too, start
// at the job file's directory, and an empty checkpoint.directory becomes NAME/checkpoints there. A
// job that gives neither training.steps nor training.epochs gets kStepsDefault steps (job_keys.h).
// Returns NotFound if there is no such file, and Internal if the working directory is needed and
// not known.
absl::StatusOr<JobSpec> ParseJobFile(const std::string& path,
                                     const std::vector<std::string>& overrides);

// Parses the text of a job file as ParseJobFile does. `name` stands for the file in errors, and
// relative paths start at `base_directory`, which must be absolute.
absl::StatusOr<JobSpec> ParseJobText(std::string_view text, const std::string& name,
                                     const std::string& base_directory,
                                     const std::vector<std::string>& overrides);

// Returns InvalidArgument, for the key output.directory, if something else that the job writes
// lies in that directory, which is replaced as a whole at the end.
absl::Status CheckOutputIsApart(const JobSpec& spec);

// Parses the text of a job that another process sent. Differs from ParseJobText in three points.
// `base_directory` may be empty; then relative paths are refused. An empty checkpoint.directory
// stays empty. CheckOutputIsApart is left to the caller.
absl::StatusOr<JobSpec> ParseSubmittedJob(std::string_view text, const std::string& name,
                                          const std::string& base_directory,
                                          const std::vector<std::string>& overrides);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_JOB_PARSER_H_

// Job files: YAML and overrides in, a checked JobSpec out.
//
// Errors are those of ReadConfig (engine/config/config_reader.h); a file that cannot be read is
// NotFound.
#ifndef MEGATRAIN_ENGINE_JOB_JOB_PARSER_H_
#define MEGATRAIN_ENGINE_JOB_JOB_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Reads the job file at `path` and overrides as in "training.steps=50" (see ReadConfig). Paths in
// the result are absolute: relative ones, in overrides too, are taken from the job file's
// directory, and an empty checkpoint.directory becomes NAME/checkpoints there.
absl::StatusOr<JobSpec> ParseJobFile(const std::string& path,
                                     const std::vector<std::string>& overrides);

// The same for a text. `name` stands for the file in errors; `base_directory` is absolute.
absl::StatusOr<JobSpec> ParseJobText(std::string_view text, const std::string& name,
                                     const std::string& base_directory,
                                     const std::vector<std::string>& overrides);

// The same for a job that was handed over rather than read from a file here. `base_directory` may
// be empty: relative paths are then refused. An empty checkpoint.directory stays empty.
absl::StatusOr<JobSpec> ParseSubmittedJob(std::string_view text, const std::string& name,
                                          const std::string& base_directory,
                                          const std::vector<std::string>& overrides);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_JOB_PARSER_H_

#include "server/jobs/submission.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/job/job_parser.h"
#include "server/jobs/error_reason.h"

namespace megatrain {
namespace {

absl::Status CheckExists(const char* key, const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return absl::OkStatus();
  return WithReason(absl::InvalidArgumentError(absl::StrCat(key, ": ", path, ": ",
                                                            error ? error.message()
                                                                  : "there is no such file on the "
                                                                    "daemon's machine")),
                    "INVALID_JOB_FILE");
}

}  // namespace

std::string JobDirectory(const std::string& state_directory, const std::string& id) {
  return absl::StrCat(state_directory, "/jobs/", id);
}

absl::StatusOr<JobSpec> ParseJob(const JobFile& file, const std::string& state_directory,
                                 const std::string& id) {
  if (!file.base_directory.empty() && file.base_directory.front() != '/') {
    return WithReason(
        absl::InvalidArgumentError(absl::StrCat("base_directory: \"", file.base_directory,
                                                "\" is not absolute; give an absolute directory "
                                                "on the daemon's machine, or none")),
        "INVALID_FIELD", {{"field", "base_directory"}});
  }
  absl::StatusOr<JobSpec> spec =
      ParseSubmittedJob(file.yaml, file.file_name.empty() ? "job" : file.file_name,
                        file.base_directory, file.overrides);
  if (!spec.ok()) return WithReason(spec.status(), "INVALID_JOB_FILE");
  if (spec->checkpoint.directory.empty()) {
    spec->checkpoint.directory = absl::StrCat(JobDirectory(state_directory, id), "/checkpoints");
  }
  return spec;
}

bool WritesInOwnDirectory(const JobSpec& spec, const std::string& state_directory,
                          const std::string& id) {
  return absl::StartsWith(spec.checkpoint.directory,
                          absl::StrCat(JobDirectory(state_directory, id), "/"));
}

absl::Status CheckInputsExist(const JobSpec& spec) {
  MT_RETURN_IF_ERROR(CheckExists("model.path", spec.model.path));
  for (const DataFile& file : spec.data.train) {
    MT_RETURN_IF_ERROR(CheckExists("data.train", file.path));
  }
  for (const DataFile& file : spec.data.eval) {
    MT_RETURN_IF_ERROR(CheckExists("data.eval", file.path));
  }
  return absl::OkStatus();
}

}  // namespace megatrain

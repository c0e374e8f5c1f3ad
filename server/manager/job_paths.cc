#include "server/manager/job_paths.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/job/data_paths.h"
#include "engine/job/job_parser.h"
#include "server/base/error_reason.h"
#include "server/files/job_files.h"
#include "server/files/own_directory.h"

namespace megatrain {
namespace {

// "KEY: what is wrong", with the reason that callers see.
absl::Status AtKey(const char* key, const absl::Status& status) {
  if (status.ok()) return status;
  std::string message = absl::StrCat(key, ": ", status.message());
  if (absl::IsPermissionDenied(status)) {
    return WithReason(absl::PermissionDeniedError(message), v1::NOT_PERMITTED, {{"field", key}});
  }
  if (absl::IsNotFound(status)) {
    absl::StrAppend(&message, "; the path is one of the daemon's machine");
  }
  return WithReason(absl::InvalidArgumentError(message), v1::INVALID_JOB_FILE);
}

absl::Status CheckModel(const std::string& path, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const FileInfo info, files->Examine(path));
  if (info.is_directory) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is not a directory: give the one that holds the model's config.json"));
}

}  // namespace

std::string JobDirectory(const std::string& state_directory, const std::string& id) {
  return absl::StrCat(state_directory, "/jobs/", id);
}

absl::StatusOr<JobSpec> ParseJob(const JobFile& file, const std::string& state_directory,
                                 const std::string& id) {
  if (!file.base_directory.empty() && file.base_directory.front() != '/') {
    return InvalidField("base_directory",
                        absl::StrCat("\"", file.base_directory,
                                     "\" is not absolute; give an absolute directory on the "
                                     "daemon's machine, or none"));
  }
  absl::StatusOr<JobSpec> spec =
      ParseSubmittedJob(file.yaml, file.file_name.empty() ? "job" : file.file_name,
                        file.base_directory, file.overrides);
  if (!spec.ok()) return WithReason(spec.status(), v1::INVALID_JOB_FILE);
  if (spec->checkpoint.directory.empty()) {
    spec->checkpoint.directory = OwnCheckpointDirectory(state_directory, id);
  }
  return spec;
}

bool WritesInOwnDirectory(const JobSpec& spec, const std::string& job_directory) {
  return absl::StartsWith(spec.checkpoint.directory, job_directory + "/");
}

void SetSpec(JobSpec spec, const std::string& state_directory, Job* job) {
  const std::string with = JobOfOwnDirectory(state_directory, spec.checkpoint.directory);
  job->own_checkpoints = with == job->id;
  job->checkpoints_with = job->own_checkpoints ? "" : with;
  job->spec = std::make_shared<const JobSpec>(std::move(spec));
}

absl::Status CheckIsNoOwnDirectory(const std::string& state_directory, const std::string& path) {
  const std::string job = JobOfOwnDirectory(state_directory, path);
  if (job.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " lies in the directory of job ", job,
                   ", which is removed with that job; only checkpoint.directory may lie there"));
}

absl::Status CheckPaths(const JobSpec& spec, const std::string& job_directory, FileSystem* files) {
  MT_RETURN_IF_ERROR(AtKey("model.path", CheckModel(spec.model.path, files)));
  MT_RETURN_IF_ERROR(AtKey("data.train", CheckDataFiles(spec.data.train, files)));
  MT_RETURN_IF_ERROR(AtKey("data.eval", CheckDataFiles(spec.data.eval, files)));
  const std::string state = ParentDirectory(ParentDirectory(job_directory));
  for (const auto& [key, path] : {std::pair("data.cache_directory", &spec.data.cache_directory),
                                  std::pair("report.tensorboard", &spec.report.tensorboard),
                                  std::pair("output.directory", &spec.output.directory)}) {
    MT_RETURN_IF_ERROR(AtKey(key, CheckIsNoOwnDirectory(state, *path)));
  }
  if (!spec.data.cache_directory.empty()) {
    MT_RETURN_IF_ERROR(
        AtKey("data.cache_directory", files->CheckWritable(spec.data.cache_directory)));
  }
  // The job's own is made when it begins.
  if (!WritesInOwnDirectory(spec, job_directory)) {
    MT_RETURN_IF_ERROR(
        AtKey("checkpoint.directory", files->CheckWritable(spec.checkpoint.directory)));
  }
  if (!spec.report.tensorboard.empty()) {
    MT_RETURN_IF_ERROR(
        AtKey("report.tensorboard", CheckPlaceOfDirectory(spec.report.tensorboard, files)));
  }
  if (spec.output.directory.empty()) return absl::OkStatus();
  MT_RETURN_IF_ERROR(AtKey("output.directory", CheckOutputIsApart(spec)));
  return AtKey("output.directory", CheckPlaceOfDirectory(spec.output.directory, files));
}

absl::Status CheckPlaceOfDirectory(const std::string& directory, FileSystem* files) {
  MT_RETURN_IF_ERROR(files->CheckWritable(ParentDirectory(directory)));
  const absl::StatusOr<FileInfo> there = files->Examine(directory);
  if (absl::IsNotFound(there.status())) return absl::OkStatus();
  if (!there.ok()) return there.status();
  if (there->is_directory) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(directory, " is there and is not a directory"));
}

}  // namespace megatrain

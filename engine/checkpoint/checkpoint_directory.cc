#include "engine/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/manifest.h"
#include "engine/model/hf_format.h"

namespace megatrain {
namespace {

constexpr char kStepPrefix[] = "step-";

constexpr char kOptimizerPrefix[] = "optimizer-";

absl::Status Foreign(const std::string& path, const std::string& name) {
  return absl::FailedPreconditionError(absl::StrCat(
      path, " holds ", name, ", which is no part of a checkpoint: the directory is left alone"));
}

// A leftover is known by its name; still, a directory inside it is nothing that a writer makes.
absl::Status CheckHoldsNoDirectories(const std::string& path, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(path));
  for (const std::string& name : names) {
    if (files->IsDirectory(JoinPath(path, name))) return Foreign(path, name);
  }
  return absl::OkStatus();
}

}  // namespace

std::string StepDirectoryName(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::optional<int64_t> ParseStepDirectoryName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kStepPrefix) || name.size() < 8) return std::nullopt;
  int64_t step = 0;
  if (!absl::SimpleAtoi(name, &step) || step < 0) return std::nullopt;
  // The one way to write it: no sign, no blank, no needless zero.
  if (StepDirectoryName(step) != absl::StrCat(kStepPrefix, name)) return std::nullopt;
  return step;
}

absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& directory, FileSystem* files) {
  std::vector<int64_t> steps;
  if (!files->FileExists(directory)) return steps;
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(directory));
  for (const std::string& name : names) {
    const std::optional<int64_t> step = ParseStepDirectoryName(name);
    if (step.has_value() && files->IsDirectory(JoinPath(directory, name))) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& directory,
                                                         FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(directory, files));
  std::vector<std::string> checkpoints;
  for (const int64_t step : steps) {
    std::string path = JoinPath(directory, StepDirectoryName(step));
    if (files->FileExists(JoinPath(path, kManifestFile))) checkpoints.push_back(std::move(path));
  }
  return checkpoints;
}

absl::StatusOr<std::optional<std::string>> FindNewestVerified(const std::string& directory,
                                                              std::vector<std::string>* skipped,
                                                              FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(directory, files));
  for (const int64_t step : steps) {
    const std::string path = JoinPath(directory, StepDirectoryName(step));
    const absl::Status status = VerifyCheckpoint(path, files);
    if (status.ok()) return std::optional<std::string>(path);
    if (skipped != nullptr) skipped->push_back(std::string(status.message()));
  }
  return std::optional<std::string>();
}

absl::StatusOr<std::vector<std::string>> RemoveLeftovers(const std::string& directory,
                                                         FileSystem* files) {
  std::vector<std::string> lines;
  if (!files->FileExists(directory)) return lines;
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(directory));
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    absl::string_view base = name;
    if (absl::ConsumeSuffix(&base, kReplacedSuffix)) {
      if (!ParseStepDirectoryName(base).has_value() || !files->IsDirectory(path)) continue;
      const std::string final_path = JoinPath(directory, std::string(base));
      if (!files->FileExists(final_path)) {
        MT_RETURN_IF_ERROR(files->Rename(path, final_path));
        lines.push_back(absl::StrCat("gave ", final_path, " its name back"));
        continue;
      }
    } else if (!absl::ConsumeSuffix(&base, kUnfinishedSuffix) ||
               !ParseStepDirectoryName(base).has_value() || !files->IsDirectory(path)) {
      continue;
    }
    const absl::Status ours = CheckHoldsNoDirectories(path, files);
    if (!ours.ok()) {
      lines.push_back(std::string(ours.message()));
      continue;
    }
    MT_RETURN_IF_ERROR(files->RemoveTree(path));
    lines.push_back(absl::StrCat("removed ", path, ", which was never finished"));
  }
  if (!lines.empty()) MT_RETURN_IF_ERROR(files->SyncDirectory(directory));
  return lines;
}

absl::Status CheckHoldsOnlyCheckpointFiles(const std::string& path, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(path));
  const absl::StatusOr<Manifest> manifest = ReadManifest(path, files);
  for (const std::string& name : names) {
    if (files->IsDirectory(JoinPath(path, name))) return Foreign(path, name);
    if (name == kManifestFile) continue;
    const bool known = manifest.ok()
                           ? manifest->Find(name) != nullptr
                           : IsHfFileName(name) || absl::StartsWith(name, kOptimizerPrefix);
    if (!known) return Foreign(path, name);
  }
  return absl::OkStatus();
}

absl::Status RemoveStepDirectory(const std::string& path, FileSystem* files) {
  const std::string doomed = absl::StrCat(path, kUnfinishedSuffix);
  MT_RETURN_IF_ERROR(files->RemoveTree(doomed));
  MT_RETURN_IF_ERROR(files->Rename(path, doomed));
  MT_RETURN_IF_ERROR(files->SyncDirectory(ParentDirectory(path)));
  return files->RemoveTree(doomed);
}

}  // namespace megatrain

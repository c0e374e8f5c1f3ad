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
#include "engine/checkpoint/shared_directory.h"
#include "engine/hf/hf_format.h"

namespace megatrain {
namespace {

constexpr char kStepPrefix[] = "step-";

constexpr char kReplacedSuffix[] = ".replaced";
constexpr char kReplacedBy[] = ".replaced-by-";

constexpr char kOptimizerPrefix[] = "optimizer-";

// A directory that was moved aside.
struct Replaced {
  int64_t step = 0;
  int64_t by = 0;
};

std::optional<Replaced> ParseReplacedDirectoryName(absl::string_view name) {
  const size_t split = name.find(kReplacedBy);
  std::optional<int64_t> step, by;
  if (split != absl::string_view::npos) {
    step = ParseStepDirectoryName(name.substr(0, split));
    by = ParseStepDirectoryName(name.substr(split + sizeof(kReplacedBy) - 1));
  } else if (absl::ConsumeSuffix(&name, kReplacedSuffix)) {
    step = by = ParseStepDirectoryName(name);
  }
  if (!step.has_value() || !by.has_value()) return std::nullopt;
  return Replaced{*step, *by};
}

// Unlike FileSystem::IsDirectory, tells what is not there from what cannot be looked at.
absl::StatusOr<bool> DirectoryIsThere(const std::string& path, FileSystem* files) {
  const absl::StatusOr<FileInfo> info = files->Examine(path);
  if (absl::IsNotFound(info.status()) || absl::IsInvalidArgument(info.status())) return false;
  if (!info.ok()) return info.status();
  return info->is_directory;
}

// The names in `directory`; none if it is missing.
absl::StatusOr<std::vector<std::string>> ListIfThere(const std::string& directory,
                                                     FileSystem* files) {
  absl::StatusOr<std::vector<std::string>> names = files->ListDirectory(directory);
  if (absl::IsNotFound(names.status())) return std::vector<std::string>();
  return names;
}

absl::Status Foreign(const std::string& path, const std::string& name) {
  return absl::FailedPreconditionError(absl::StrCat(
      path, " holds ", name, ", which is no part of a checkpoint: the directory is left alone"));
}

// A leftover is known by its name; still, a directory inside it is nothing that a writer makes, but
// for the folder of further chat templates.
absl::Status CheckHoldsNoDirectories(const std::string& path, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListHfDirectory(files, path));
  for (const std::string& name : names) {
    if (files->IsDirectory(JoinPath(path, name))) return Foreign(path, name);
  }
  return absl::OkStatus();
}

// Returns a line for the log that says what became of `path`. A leftover that cannot be removed
// stays: an old checkpoint that is protected is no reason to save no new one.
absl::StatusOr<std::string> LineOfRemoval(const std::string& path, const char* why,
                                          const absl::Status& status) {
  if (absl::IsCancelled(status)) return status;
  if (!status.ok()) return absl::StrCat("left alone: ", status.message());
  return absl::StrCat("removed ", path, ", which ", why);
}

// Removes the leftover `path` under the name `doomed`, unless something in it is foreign; a line
// for the log either way.
absl::StatusOr<std::string> RemoveLeftover(const std::string& path, const std::string& doomed,
                                           const char* why, FileSystem* files) {
  absl::Status status = CheckHoldsNoDirectories(path, files);
  if (absl::IsFailedPrecondition(status)) return std::string(status.message());
  // If it stays, it must not come back when the one that replaced it has been removed.
  const bool renamed =
      path != doomed && !files->FileExists(doomed) && files->Rename(path, doomed).ok();
  if (status.ok()) status = files->RemoveTree(renamed ? doomed : path);
  return LineOfRemoval(path, why, status);
}

// Gives checkpoints that were moved aside for one without a name yet their names back. That of
// the same step comes last: while it is absent, the others know that the new one has no name.
absl::Status RestoreReplaced(const std::string& directory, const std::vector<std::string>& names,
                             std::vector<std::string>& lines, FileSystem* files) {
  for (const bool same_step : {false, true}) {
    bool renamed = false;
    for (const std::string& name : names) {
      const std::optional<Replaced> replaced = ParseReplacedDirectoryName(name);
      if (!replaced.has_value() || (replaced->step == replaced->by) != same_step) continue;
      const std::string path = JoinPath(directory, name);
      const std::string final_path = JoinPath(directory, StepDirectoryName(replaced->step));
      MT_ASSIGN_OR_RETURN(const bool is_directory, DirectoryIsThere(path, files));
      MT_ASSIGN_OR_RETURN(
          const bool new_one_is_there,
          DirectoryIsThere(JoinPath(directory, StepDirectoryName(replaced->by)), files));
      if (!is_directory || new_one_is_there) continue;
      MT_RETURN_IF_ERROR(files->Rename(path, final_path));
      lines.push_back(absl::StrCat("gave ", final_path, " its name back"));
      renamed = true;
    }
    if (renamed) MT_RETURN_IF_ERROR(files->SyncDirectory(directory));
  }
  return absl::OkStatus();
}

}  // namespace

std::string StepDirectoryName(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::string ReplacedDirectoryName(int64_t step, int64_t by) {
  if (step == by) return absl::StrCat(StepDirectoryName(step), kReplacedSuffix);
  return absl::StrCat(StepDirectoryName(step), kReplacedBy, StepDirectoryName(by));
}

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
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListIfThere(directory, files));
  for (const std::string& name : names) {
    const std::optional<int64_t> step = ParseStepDirectoryName(name);
    if (!step.has_value()) continue;
    MT_ASSIGN_OR_RETURN(const bool is_directory,
                        DirectoryIsThere(JoinPath(directory, name), files));
    if (is_directory) steps.push_back(*step);
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
    const absl::Status manifest = files->Examine(JoinPath(path, kManifestFile)).status();
    if (absl::IsNotFound(manifest)) continue;
    MT_RETURN_IF_ERROR(manifest);
    checkpoints.push_back(std::move(path));
  }
  return checkpoints;
}

absl::StatusOr<std::vector<std::string>> RemoveLeftovers(const std::string& directory,
                                                         FileSystem* files) {
  std::vector<std::string> lines;
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> before, ListIfThere(directory, files));
  MT_RETURN_IF_ERROR(RestoreReplaced(directory, before, lines, files));
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListIfThere(directory, files));
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    if (IsOfSharedCheck(name)) {
      const absl::StatusOr<FileInfo> info = files->Examine(path);
      if (!info.ok() || !info->is_regular || info->bytes > 0) continue;
      MT_ASSIGN_OR_RETURN(lines.emplace_back(),
                          LineOfRemoval(path, "a check had left", files->RemoveFile(path)));
      continue;
    }
    absl::string_view base = name;
    const bool unfinished =
        absl::ConsumeSuffix(&base, kUnfinishedSuffix) && ParseStepDirectoryName(base).has_value();
    const std::optional<Replaced> replaced = ParseReplacedDirectoryName(name);
    if (!unfinished && !replaced.has_value()) continue;
    MT_ASSIGN_OR_RETURN(const bool is_directory, DirectoryIsThere(path, files));
    if (!is_directory) continue;
    const std::string doomed =
        unfinished ? path
                   : absl::StrCat(JoinPath(directory, StepDirectoryName(replaced->step)),
                                  kUnfinishedSuffix);
    MT_ASSIGN_OR_RETURN(
        lines.emplace_back(),
        RemoveLeftover(path, doomed, unfinished ? "was never finished" : "was replaced", files));
  }
  if (!lines.empty()) MT_RETURN_IF_ERROR(files->SyncDirectory(directory));
  return lines;
}

absl::Status CheckHoldsOnlyCheckpointFiles(const std::string& path, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListHfDirectory(files, path));
  const absl::StatusOr<Manifest> manifest = ReadManifest(path, files);
  for (const std::string& name : names) {
    if (files->IsDirectory(JoinPath(path, name))) return Foreign(path, name);
    if (name == kManifestFile) continue;
    const std::string whole(absl::StripSuffix(name, kPartSuffix));
    const bool known = manifest.ok()
                           ? manifest->Find(name) != nullptr
                           : IsHfFileName(whole) || absl::StartsWith(whole, kOptimizerPrefix);
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

#include "engine/checkpoint/retention.h"

#include <algorithm>
#include <functional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/checkpoint_reader.h"

namespace megatrain {
namespace {

absl::Status RemoveStep(const std::string& path, FileSystem* files) {
  MT_RETURN_IF_ERROR(CheckHoldsOnlyCheckpointFiles(path, files));
  // One that a user has protected keeps its name.
  MT_RETURN_IF_ERROR(files->CheckWritable(path));
  return RemoveStepDirectory(path, files);
}

// Returns those of `steps` before `verified` whose manifest names the same run.
std::vector<int64_t> EarlierOfTheRun(const std::string& directory,
                                     const std::vector<int64_t>& steps,
                                     const CheckpointState& verified,
                                     std::vector<std::string>* notes, FileSystem* files) {
  std::vector<int64_t> earlier;
  for (const int64_t step : steps) {
    if (step >= verified.step) continue;
    const absl::StatusOr<CheckpointState> state =
        ReadCheckpointState(JoinPath(directory, StepDirectoryName(step)), files);
    if (state.ok()) {
      if (RunName(*state) == RunName(verified)) earlier.push_back(step);
    } else if (!absl::IsNotFound(state.status())) {
      notes->push_back(absl::StrCat("left alone: ", state.status().message()));
    }
  }
  return earlier;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ListNewer(const std::string& directory, int64_t step,
                                               const Retention& retention,
                                               std::vector<std::string>* notes, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(directory, files));
  std::vector<int64_t> newer;
  for (const int64_t candidate : steps) {
    if (candidate <= step || absl::c_linear_search(retention.damaged, candidate)) continue;
    const absl::Status manifest =
        ReadManifest(JoinPath(directory, StepDirectoryName(candidate)), files).status();
    if (IsDamagedCheckpoint(manifest)) {
      notes->push_back(absl::StrCat("left alone: ", manifest.message()));
      continue;
    }
    // Another version's is a checkpoint too.
    if (!absl::IsFailedPrecondition(manifest)) MT_RETURN_IF_ERROR(manifest);
    newer.push_back(candidate);
  }
  return newer;
}

std::vector<int64_t> StepsToRemove(std::vector<int64_t> steps, int64_t verified,
                                   const Retention& retention) {
  std::sort(steps.begin(), steps.end(), std::greater<>());
  std::vector<int64_t> doomed;
  int64_t kept = 1;  // `verified`
  for (const int64_t step : steps) {
    if (step >= verified || step == retention.best) continue;
    if (kept < retention.keep && !absl::c_linear_search(retention.damaged, step)) {
      ++kept;
    } else {
      doomed.push_back(step);
    }
  }
  return doomed;
}

void PruneCheckpoints(const std::string& directory, const CheckpointState& verified,
                      const Retention& retention, std::vector<std::string>* notes,
                      FileSystem* files) {
  const auto steps = ListSteps(directory, files);
  if (!steps.ok()) {
    notes->push_back(std::string(steps.status().message()));
    return;
  }
  const std::vector<int64_t> ours = EarlierOfTheRun(directory, *steps, verified, notes, files);
  for (const int64_t step : StepsToRemove(ours, verified.step, retention)) {
    const absl::Status status = RemoveStep(JoinPath(directory, StepDirectoryName(step)), files);
    if (!status.ok()) notes->push_back(std::string(status.message()));
  }
}

}  // namespace megatrain

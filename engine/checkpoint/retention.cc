#include "engine/checkpoint/retention.h"

#include <algorithm>
#include <functional>

#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_directory.h"

namespace megatrain {
namespace {

absl::Status RemoveStep(const std::string& path, FileSystem* files) {
  MT_RETURN_IF_ERROR(CheckHoldsOnlyCheckpointFiles(path, files));
  return RemoveStepDirectory(path, files);
}

}  // namespace

std::vector<int64_t> StepsToRemove(std::vector<int64_t> steps, int64_t verified, int64_t keep) {
  std::sort(steps.begin(), steps.end(), std::greater<>());
  std::vector<int64_t> doomed;
  int64_t kept = 1;  // `verified`
  for (const int64_t step : steps) {
    if (step == verified) continue;
    if (step < verified && kept < keep) {
      ++kept;
    } else {
      doomed.push_back(step);
    }
  }
  return doomed;
}

void PruneCheckpoints(const std::string& directory, int64_t verified, int64_t keep,
                      std::vector<std::string>* notes, FileSystem* files) {
  const auto steps = ListSteps(directory, files);
  if (!steps.ok()) {
    notes->push_back(std::string(steps.status().message()));
    return;
  }
  for (const int64_t step : StepsToRemove(*steps, verified, keep)) {
    const absl::Status status = RemoveStep(JoinPath(directory, StepDirectoryName(step)), files);
    if (!status.ok()) notes->push_back(std::string(status.message()));
  }
}

}  // namespace megatrain

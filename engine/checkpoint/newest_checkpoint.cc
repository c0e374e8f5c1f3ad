#include "engine/checkpoint/newest_checkpoint.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_state.h"

namespace megatrain {

std::string NewestSpecValue(const std::string& directory, const std::string& key,
                            FileSystem* files) {
  const absl::StatusOr<std::vector<std::string>> checkpoints = ListCheckpoints(directory, files);
  if (!checkpoints.ok()) return "";
  for (const std::string& checkpoint : *checkpoints) {
    const absl::StatusOr<CheckpointState> state = ReadCheckpointState(checkpoint, files);
    if (!state.ok()) continue;
    const auto found = state->spec.find(key);
    return found == state->spec.end() ? "" : found->second;
  }
  return "";
}

absl::StatusOr<std::optional<std::string>> FindNewestToLoad(const std::string& directory,
                                                            std::vector<DamagedCheckpoint>* damaged,
                                                            FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(directory, files));
  for (const int64_t step : steps) {
    if (absl::c_any_of(*damaged, [step](const auto& one) { return one.step == step; })) continue;
    const std::string path = JoinPath(directory, StepDirectoryName(step));
    const absl::Status status = VerifyAllButTileContents(path, files);
    if (status.ok()) return std::optional<std::string>(path);
    if (!IsDamagedCheckpoint(status)) {
      return absl::Status(status.code(),
                          absl::StrCat(status.message(),
                                       "; what cannot be read is not known to be damaged: try "
                                       "again, or move ",
                                       path, " elsewhere to go on from an older checkpoint"));
    }
    damaged->push_back({step, std::string(status.message())});
  }
  return std::optional<std::string>();
}

}  // namespace megatrain

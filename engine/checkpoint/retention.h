// Decides which checkpoints of a run are kept, and removes the others.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_RETENTION_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint_state.h"

namespace megatrain {

// The rule for keeping checkpoints after a run has saved a new one.
struct Retention {
  int64_t keep = 1;  // checkpoints of the run to keep, the new one included; at least 1
  // Steps whose checkpoints were found damaged when the run looked for one to resume from. They do
  // not count for `keep`. Once the run has saved a later checkpoint, it removes those that are its
  // own. One whose manifest cannot be read is not known to be its own, and stays.
  std::vector<int64_t> damaged;
  // Steps, of any run, that are newer than the checkpoint from which the run resumed. The first
  // checkpoint that the run saves replaces them (CheckpointWriter::Finish).
  std::vector<int64_t> discard;
  int64_t best = 0;  // the step of a checkpoint to keep beside those; 0: none
};

// Returns the steps of the checkpoints in `directory` that are newer than `step`, highest first,
// except those in `retention.damaged`. A step directory without a manifest, or with a damaged one,
// is left out, and a line about it for the log is added to `*notes`. Errors of `files` are
// returned.
absl::StatusOr<std::vector<int64_t>> ListNewer(const std::string& directory, int64_t step,
                                               const Retention& retention,
                                               std::vector<std::string>* notes,
                                               FileSystem* files = PosixFileSystem());

// Returns the elements of `steps`, all of one run, to remove after the checkpoint of step
// `verified` was written and verified. The result depends on the arguments only.
// - `verified` stays, so at least one good checkpoint remains whatever retention.keep says.
// - Of the earlier ones that are not damaged, the newest retention.keep - 1 stay.
// - retention.best stays and does not count.
// - Later ones stay, because a new checkpoint does not replace them.
// - All others are removed, those in retention.damaged too.
// For example, of the steps 10, 20, 30, 40, 50 with 50 verified, keep 2 and best 20 it returns 30
// and 10.
std::vector<int64_t> StepsToRemove(std::vector<int64_t> steps, int64_t verified,
                                   const Retention& retention);

// Removes the checkpoints of the run in `directory` that StepsToRemove selects, after the one with
// the state `verified` was written. Checkpoints of other runs and directories without a manifest
// are left alone. So are checkpoints with a manifest that cannot be read, with foreign files, or
// that cannot be removed; a line is added to `*notes` for each of these whose step is lower than
// that of `verified`. If `directory` cannot be listed, removes nothing and adds a line.
void PruneCheckpoints(const std::string& directory, const CheckpointState& verified,
                      const Retention& retention, std::vector<std::string>* notes,
                      FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_RETENTION_H_

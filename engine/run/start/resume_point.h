// FindResumePoint chooses the checkpoint that a run resumes from, according to ResumeMode:
// - kAuto takes the newest checkpoint in checkpoint.directory that is not damaged. Newer ones that
//   are damaged are named in the log. If there is none at all, the run begins anew. If all are
//   damaged, it is refused.
// - kNever begins anew. The run is refused if there is any checkpoint in checkpoint.directory.
// - kPath takes the checkpoint at the path, or refuses the run if it is damaged. The run is also
//   refused if checkpoint.directory holds newer ones. With TrainingOptions::discard_newer these are
//   removed instead, when the run has saved its first checkpoint.
// The tiles' files, nearly all of a checkpoint, are verified while they are loaded. If one is found
// damaged then, FallBack chooses again.
//
// A checkpoint of other data, another model or other settings is refused (CheckResumable).
#ifndef MEGATRAIN_ENGINE_RUN_START_RESUME_POINT_H_
#define MEGATRAIN_ENGINE_RUN_START_RESUME_POINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/run/start/run_context.h"

namespace megatrain {

struct ResumePoint {
  std::optional<std::string> checkpoint;  // a step directory; nullopt if the run begins anew
  int64_t step = 0;                       // the checkpoint's step; 0 if the run begins anew
  int64_t data_position = 0;              // in the training order, of the next sequence
  int64_t steps_total = 0;                // as planned when it was written; 0 without one
  int64_t input_tokens = 0;               // tokens trained on up to that step
  std::string reference;                  // CheckpointState::reference
  std::string run_name;                   // RunName of the checkpoint; new for a new run
  // Up to that step. With training.keep_best they begin anew if the best checkpoint is gone.
  Evaluations evaluations;
  std::vector<AllowedChange> allowed_changes;  // of the run so far
  Retention retention;                         // for the checkpoints that the run will save
  std::vector<DamagedCheckpoint> damaged;      // in the order in which they were found
};

// Removes what a dead process left in checkpoint.directory (RemoveLeftovers), in the process that
// leads of `ranks`, which share the directory, and chooses the checkpoint. `wanted` is the state
// that the run would have if it began anew. Returns FailedPrecondition if the run is refused
// because of what is there, DataLoss if the checkpoints are damaged, and the errors of reading
// them. REQUIRES: the process that leads holds the lock of the directory (directory_lock.h).
//
// Where machines have directories of their own, all processes call it at the same time. A part that
// another machine has given its name, and this one has not, gets it. kAuto takes the newest
// checkpoint of which all have their parts, and passes over newer ones as if they were damaged.
// Returns FailedPrecondition if a machine has none and another one has.
absl::StatusOr<ResumePoint> FindResumePoint(RunContext& run, const DirectoryRanks& ranks,
                                            const CheckpointState& wanted);

// Checks that all processes go on from the same checkpoint: the same step, the same best evaluation
// up to it, and the same bytes of the manifest, which has the hashes of all files, or parts of the
// same save, each that of its machine's number. Returns FailedPrecondition, naming the ranks and
// what differs, and the errors of reading. All processes must call it.
absl::Status CheckSameStart(RunContext& run, const DirectoryRanks& ranks, const ResumePoint& point);

// Chooses an older checkpoint after loading that of `point` ended with `damage`. Changes `point` to
// it, and adds the damaged one to `damaged` and `retention.damaged`. Returns `damage` itself if it
// is no damage (IsDamagedCheckpoint) or the user named the checkpoint, DataLoss if no other is
// left, and otherwise the errors of FindResumePoint.
absl::Status FallBack(RunContext& run, const DirectoryRanks& ranks, const CheckpointState& wanted,
                      const absl::Status& damage, ResumePoint& point);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_RESUME_POINT_H_

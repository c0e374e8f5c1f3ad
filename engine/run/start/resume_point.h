// FindResumePoint chooses the checkpoint that a run resumes from, according to ResumeMode:
// - kAuto takes the newest checkpoint that is not damaged. Damaged newer ones are named in the log.
//   If all are damaged, the run is refused.
// - kNever refuses the run if there is any checkpoint in its directory.
// - kPath takes the checkpoint at the path, or refuses the run if it is damaged. The run is also
//   refused if its directory holds newer ones. With TrainingOptions::discard_newer these are
//   removed instead, when the run has saved its first checkpoint.
// The tiles' files, nearly all of a checkpoint, are verified while they are loaded. If one is found
// damaged then, FallBack chooses again.
//
// A checkpoint of other data, another model or other settings is refused (CheckResumable).
#ifndef MEGATRAIN_ENGINE_RUN_START_RESUME_POINT_H_
#define MEGATRAIN_ENGINE_RUN_START_RESUME_POINT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/run/start/run_context.h"

namespace megatrain {

struct ResumePoint {
  std::unique_ptr<FileLock> lock;              // locks checkpoint.directory while the run lasts
  std::optional<std::string> checkpoint;       // a step directory; nullopt if the run begins anew
  int64_t step = 0;                            // the checkpoint's step; 0 if the run begins anew
  int64_t data_position = 0;                   // in the training order, of the next sequence
  int64_t steps_total = 0;                     // of the run when the checkpoint was written
  int64_t input_tokens = 0;                    // tokens trained on up to that step
  std::string reference;                       // CheckpointState::reference
  std::string run_name;                        // CheckpointState::run
  Evaluations evaluations;                     // up to that step
  std::vector<AllowedChange> allowed_changes;  // of the run so far
  Retention retention;                         // for the checkpoints that the run will save
  std::vector<DamagedCheckpoint> damaged;      // in the order in which they were found
};

// Locks checkpoint.directory, removes what a dead process left there (RemoveLeftovers), and chooses
// the checkpoint. Of several processes the first one locks and removes. `wanted` is the state that
// the run would have if it began anew. Returns FailedPrecondition if the directory is locked or the
// run is refused because of what is there, DataLoss if the checkpoints are damaged, and the errors
// of reading them.
absl::StatusOr<ResumePoint> FindResumePoint(RunContext& run, const CheckpointState& wanted);

// Chooses an older checkpoint after loading that of `point` ended with `damage`, and changes
// `point` to it. Returns `damage` itself if it is no damage (IsDamagedCheckpoint) or the user named
// the checkpoint, DataLoss if no other is left, and otherwise the errors of FindResumePoint.
absl::Status FallBack(RunContext& run, const CheckpointState& wanted, const absl::Status& damage,
                      ResumePoint& point);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_RESUME_POINT_H_

// FindResumePoint chooses the checkpoint that a run resumes from, according to ResumeMode:
// - kAuto takes the newest checkpoint in checkpoint.directory that is not damaged. Newer ones that
//   are damaged are named in the log. If there is no checkpoint, the run begins anew. If all are
//   damaged, the run is refused.
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

// The state that a run goes on from.
struct ResumePoint {
  std::optional<std::string> checkpoint;  // a step directory; nullopt if the run begins anew
  int64_t step = 0;                       // the checkpoint's step; 0 if the run begins anew
  int64_t data_position = 0;              // in the training order, of the next sequence
  int64_t steps_total = 0;                // as planned at the checkpoint; 0 if the run begins anew
  int64_t input_tokens = 0;               // tokens trained on up to that step
  std::string reference;                  // CheckpointState::reference
  std::string run_name;                   // RunName of the checkpoint; new for a new run
  // Up to that step. With training.keep_best they begin anew if the best checkpoint is gone.
  Evaluations evaluations;
  std::vector<AllowedChange> allowed_changes;  // of the run so far
  Retention retention;                         // for the checkpoints that the run will save
  std::vector<DamagedCheckpoint> damaged;      // in the order in which they were found
};

// Cleans up after a process that died, before anything is looked for in checkpoint.directory. The
// process that leads of `ranks`, which share the directory, calls RemoveLeftovers. Returns the
// errors of that. REQUIRES: the process that leads holds the lock of the directory
// (directory_lock.h).
//
// Where machines have directories of their own, all processes call it at the same time. If a save
// has its final name on one machine, a whole part of it on another machine that is still named
// ".tmp" gets its final name too, before leftovers are removed. Returns the errors of the
// communicator, and those of reading manifests and parts, unless they are damaged.
absl::Status ClearLeftovers(RunContext& run, const DirectoryRanks& ranks);

// Chooses the checkpoint. `wanted` is the state that the run would have if it began anew. Returns
// FailedPrecondition if the run is refused because of what is there or by CheckResumable, DataLoss
// if the checkpoints are damaged, and the errors of reading them (NotFound if kPath names no
// checkpoint). REQUIRES: ClearLeftovers has returned OK in the process that leads, which still
// holds the lock.
//
// Where machines have directories of their own, all processes call it at the same time. kAuto takes
// the newest checkpoint of which all machines have their parts, and passes over newer ones as if
// they were damaged. Returns FailedPrecondition if some machines have checkpoints and others have
// none, and the errors of the communicator.
absl::StatusOr<ResumePoint> FindResumePoint(RunContext& run, const DirectoryRanks& ranks,
                                            const CheckpointState& wanted);

// Checks that all processes go on from the same checkpoint: the same step, and the same best
// evaluation up to it. The bytes of the manifest, which has the hashes of all files, must be the
// same too, unless the checkpoint is in parts. These must be of the same save, each on the machine
// of its number. Returns FailedPrecondition, saying what differs, and the errors of reading and of
// the communicator. All processes must call it. Does nothing for a process alone.
absl::Status CheckSameStart(RunContext& run, const DirectoryRanks& ranks, const ResumePoint& point);

// Chooses an older checkpoint after loading that of `point` ended with the error `damage`. Changes
// `point` to it, and adds the damaged one to point.damaged and point.retention.damaged. Returns
// `damage` itself if it does not mean damage (IsDamagedCheckpoint) or if the mode is not kAuto.
// Returns DataLoss if no other checkpoint is left, and otherwise the errors of FindResumePoint.
absl::Status FallBack(RunContext& run, const DirectoryRanks& ranks, const CheckpointState& wanted,
                      const absl::Status& damage, ResumePoint& point);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_RESUME_POINT_H_

// Which checkpoint a run goes on from, and what becomes of the others in its directory.
//
// - auto: the newest one that verifies. Damaged newer ones are named in the log; if all are
//   damaged, the run is refused.
// - never: refused if any checkpoint is there.
// - a path: that one, if it verifies. Newer ones in the directory are refused, or discarded with
//   the first checkpoint that the run saves, if it was told so.
// A checkpoint of other data, another model or other settings is refused (CheckResumable).
#ifndef MEGATRAIN_ENGINE_RUN_RESUME_POINT_H_
#define MEGATRAIN_ENGINE_RUN_RESUME_POINT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/run/run_context.h"

namespace megatrain {

struct ResumePoint {
  std::unique_ptr<FileLock> lock;         // on checkpoint.directory, while the run lasts
  std::optional<std::string> checkpoint;  // its directory; empty: the run begins with the model
  int64_t step = 0;                       // of the checkpoint
  int64_t input_tokens = 0;               // trained on before
  std::string run_name;
  Retention retention;
};

// Locks checkpoint.directory, removes what a dead process left there, and chooses. `wanted`: the
// state of the run if it began anew. Errors: FailedPrecondition if the directory is locked or the
// run may not go on from what is there, DataLoss if that is damaged.
absl::StatusOr<ResumePoint> FindResumePoint(RunContext& run, const CheckpointState& wanted);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_RESUME_POINT_H_

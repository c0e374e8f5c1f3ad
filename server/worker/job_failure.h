// Tells the reason of a run's failure from its error.
#ifndef MEGATRAIN_SERVER_WORKER_JOB_FAILURE_H_
#define MEGATRAIN_SERVER_WORKER_JOB_FAILURE_H_

#include "absl/status/status.h"
#include "server/jobs/job.h"

namespace megatrain {

// Returns the reason for which a run failed or paused by itself. `status` is the error of its
// RunEnd or TrainingPause.
// - kDiskFull: IsDiskFull.
// - kInvalidInput: InvalidArgument, NotFound, FailedPrecondition, OutOfRange, Unimplemented,
//   PermissionDenied.
// - kDoesNotFit: ResourceExhausted.
// - kNonFinite: Aborted.
// - kCheckpointDamaged: DataLoss.
// - kTrainingError: any other.
JobReason FailureOf(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_JOB_FAILURE_H_

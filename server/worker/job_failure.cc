#include "server/worker/job_failure.h"

#include "engine/base/file.h"

namespace megatrain {

JobReason FailureOf(const absl::Status& status) {
  if (IsDiskFull(status)) return JobReason::kDiskFull;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kPermissionDenied:
      return JobReason::kInvalidInput;
    case absl::StatusCode::kResourceExhausted:
      return JobReason::kDoesNotFit;
    case absl::StatusCode::kAborted:
      return JobReason::kNonFinite;
    case absl::StatusCode::kDataLoss:
      return JobReason::kCheckpointDamaged;
    default:
      return JobReason::kTrainingError;
  }
}

}  // namespace megatrain

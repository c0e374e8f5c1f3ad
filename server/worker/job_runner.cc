#include "server/worker/job_runner.h"

#include "engine/base/file.h"

namespace megatrain {

RunFailure FailureOf(const absl::Status& status) {
  if (IsDiskFull(status)) return RunFailure::kDiskFull;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return RunFailure::kNone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kPermissionDenied:
      return RunFailure::kInvalidInput;
    case absl::StatusCode::kResourceExhausted:
      return RunFailure::kDoesNotFit;
    case absl::StatusCode::kUnavailable:
      return RunFailure::kPoolBusy;
    case absl::StatusCode::kAborted:
      return RunFailure::kNonFinite;
    case absl::StatusCode::kDataLoss:
      return RunFailure::kCheckpointDamaged;
    default:
      return RunFailure::kInternal;
  }
}

}  // namespace megatrain

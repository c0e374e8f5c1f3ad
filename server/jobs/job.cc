#include "server/jobs/job.h"

namespace megatrain {

const char* JobReasonName(JobReason reason) {
  switch (reason) {
    case JobReason::kNone:
      return "NONE";
    case JobReason::kUserRequest:
      return "USER_REQUEST";
    case JobReason::kDiskFull:
      return "DISK_FULL";
    case JobReason::kProcessRestart:
      return "PROCESS_RESTART";
    case JobReason::kShutdown:
      return "SHUTDOWN";
    case JobReason::kRepeatedDeaths:
      return "REPEATED_DEATHS";
    case JobReason::kTrainingError:
      return "TRAINING_ERROR";
    case JobReason::kInvalidInput:
      return "INVALID_INPUT";
    case JobReason::kDoesNotFit:
      return "DOES_NOT_FIT";
    case JobReason::kNonFinite:
      return "NON_FINITE";
    case JobReason::kCheckpointDamaged:
      return "CHECKPOINT_DAMAGED";
    case JobReason::kDiskLimit:
      return "DISK_LIMIT";
  }
  return "NONE";
}

std::optional<JobReason> ParseJobReason(std::string_view name) {
  for (int i = 0; i < kJobReasons; ++i) {
    if (name == JobReasonName(static_cast<JobReason>(i))) return static_cast<JobReason>(i);
  }
  return std::nullopt;
}

const char* WaitingReasonName(WaitingReason reason) {
  switch (reason) {
    case WaitingReason::kNone:
      return "NONE";
    case WaitingReason::kNotConsidered:
      return "NOT_CONSIDERED";
    case WaitingReason::kDeviceBusy:
      return "DEVICE_BUSY";
    case WaitingReason::kBehindOthers:
      return "BEHIND_OTHERS";
    case WaitingReason::kHostMemory:
      return "HOST_MEMORY";
    case WaitingReason::kDiskFull:
      return "DISK_FULL";
    case WaitingReason::kUserLimit:
      return "USER_LIMIT";
    case WaitingReason::kShuttingDown:
      return "SHUTTING_DOWN";
  }
  return "NONE";
}

}  // namespace megatrain

// Names of jobs as users give them and as the API takes them.
#ifndef MEGATRAIN_CLIENT_CONTEXT_JOB_NAME_H_
#define MEGATRAIN_CLIENT_CONTEXT_JOB_NAME_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain::client {

// "jobs/ID" of "jobs/ID" or "ID".
absl::StatusOr<std::string> ParseJobName(const std::string& text);
// The same, or "jobs/ID/checkpoints/STEP" of that or of "ID/checkpoints/STEP".
absl::StatusOr<std::string> ParseJobOrCheckpointName(const std::string& text);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_JOB_NAME_H_

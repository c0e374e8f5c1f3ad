// Makes names of the API of names that users type.
#ifndef MEGATRAIN_CLIENT_CONTEXT_JOB_NAME_H_
#define MEGATRAIN_CLIENT_CONTEXT_JOB_NAME_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain::client {

// Returns "jobs/ID" for "jobs/ID" or "ID". InvalidArgument for other texts.
absl::StatusOr<std::string> ParseJobName(const std::string& text);
// Returns the same, or "jobs/ID/checkpoints/STEP" for that or "ID/checkpoints/STEP".
absl::StatusOr<std::string> ParseJobOrCheckpointName(const std::string& text);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_JOB_NAME_H_

// Turns job names that users type into the API's names.
#ifndef MEGATRAIN_CLIENT_CONTEXT_JOB_NAME_H_
#define MEGATRAIN_CLIENT_CONTEXT_JOB_NAME_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain::client {

// Returns "jobs/ID" for "jobs/ID" or "ID". Returns InvalidArgument for any other text. An ID has
// letters, digits and characters of "-_".
absl::StatusOr<std::string> ParseJobName(const std::string& text);
// Returns "jobs/ID/checkpoints/STEP" for that text or "ID/checkpoints/STEP", where STEP has digits
// only. Treats any other text as ParseJobName does.
absl::StatusOr<std::string> ParseJobOrCheckpointName(const std::string& text);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_JOB_NAME_H_

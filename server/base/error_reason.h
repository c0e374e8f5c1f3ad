// Attaches to an absl::Status the stable reason of its error, an ErrorReason of the API. The Status
// carries the reason to server/transport/error_status.h, which makes a google.rpc.ErrorInfo of it.
#ifndef MEGATRAIN_SERVER_BASE_ERROR_REASON_H_
#define MEGATRAIN_SERVER_BASE_ERROR_REASON_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "megatrain/v1/error_reason.pb.h"

namespace megatrain {

struct ErrorReasonInfo {
  std::string reason;  // a name of the API's ErrorReason: "JOB_NOT_FOUND"
  // Keys and values, in which programs find the details. error_reason.proto lists the keys.
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Returns `status` with the reason attached in place of any other. REQUIRES: no NUL byte in a text
// of `metadata`; `status` is not OK.
absl::Status WithReason(absl::Status status, v1::ErrorReason reason,
                        std::vector<std::pair<std::string, std::string>> metadata = {});

// Returns NotFound (JOB_NOT_FOUND) for a job that does not exist or that the caller may not see.
absl::Status JobNotFound(const std::string& id);

// Returns InvalidArgument (INVALID_FIELD): "FIELD: MESSAGE".
absl::Status InvalidField(const std::string& field, const std::string& message);

// Returns Unauthenticated, with `reason`, for a call whose caller is not authenticated.
absl::Status CallerRefused(v1::ErrorReason reason, const std::string& message);

// Returns Unavailable (STOPPING).
absl::Status DaemonStopping();

// Returns the reason of a Status, or nullopt if it has none.
std::optional<ErrorReasonInfo> ReasonOf(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_BASE_ERROR_REASON_H_

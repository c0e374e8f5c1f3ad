// Turns an absl::Status into what gRPC sends: the code, the message, and a google.rpc.ErrorInfo
// with a reason of the API's ErrorReason. WithReason (error_reason.h) attaches the reason and its
// metadata to a Status. All texts are valid UTF-8.
#ifndef MEGATRAIN_SERVER_TRANSPORT_ERROR_STATUS_H_
#define MEGATRAIN_SERVER_TRANSPORT_ERROR_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

// The domain of each google.rpc.ErrorInfo.
inline constexpr char kErrorDomain[] = "megatrain";

// Returns the name of the status's reason (ReasonOf), or of a general one for its code. REQUIRES:
// !status.ok().
std::string ReasonName(const absl::Status& status);

// Returns OK for OK, else the code, the message, ReasonName and the reason's metadata. A message of
// more than 3,000 bytes is cut to that or a little less, and " ..." is added. A '%' and each byte
// that is not printable ASCII count as 3 bytes, because gRPC sends them as "%XX".
grpc::Status ToGrpcStatus(const absl::Status& status);

// Returns `text` if it is valid UTF-8, else `text` with '?' in place of every byte beyond ASCII.
// Paths and texts of libraries may hold any bytes, but a receiver cannot read a message whose texts
// are not UTF-8.
std::string ValidUtf8(std::string text);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_ERROR_STATUS_H_

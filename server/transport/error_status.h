// The edge where an absl::Status becomes what gRPC sends: the code, the message, and a
// google.rpc.ErrorInfo with a reason of the API's ErrorReason.
#ifndef MEGATRAIN_SERVER_TRANSPORT_ERROR_STATUS_H_
#define MEGATRAIN_SERVER_TRANSPORT_ERROR_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

inline constexpr char kErrorDomain[] = "megatrain";

// A Status without a reason of its own gets the general one of its code.
grpc::Status ToGrpcStatus(const absl::Status& status);

// InvalidArgument "FIELD: MESSAGE" with reason INVALID_FIELD.
absl::Status InvalidField(const std::string& field, const std::string& message);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_ERROR_STATUS_H_

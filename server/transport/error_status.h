// Makes of an absl::Status what gRPC sends: the code, the message, and a
// google.rpc.ErrorInfo with a reason of the API's ErrorReason, all in valid UTF-8.
#ifndef MEGATRAIN_SERVER_TRANSPORT_ERROR_STATUS_H_
#define MEGATRAIN_SERVER_TRANSPORT_ERROR_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

inline constexpr char kErrorDomain[] = "megatrain";

// A Status without a reason of its own gets a general one for its code. A long message is cut.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Returns `text`, or with '?' for every byte beyond ASCII if it is not UTF-8. Texts of messages
// must be UTF-8 or their receiver cannot read the message; paths and texts of libraries may hold
// any.
std::string ValidUtf8(std::string text);

// InvalidArgument "FIELD: MESSAGE" with reason INVALID_FIELD.
absl::Status InvalidField(const std::string& field, const std::string& message);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_ERROR_STATUS_H_

// Errors of calls: their stable reasons, their exit codes, and advice for people.
//
// Within the client an error is an absl::Status. If a server made it, the Status carries the
// server's ErrorInfo. If the client made it (a wrong flag, a missing file), it has none.
#ifndef MEGATRAIN_CLIENT_CONNECTION_RPC_ERROR_H_
#define MEGATRAIN_CLIENT_CONNECTION_RPC_ERROR_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "client/connection/exit_code.h"

namespace megatrain::client {

// Keeps code, message and ErrorInfo.
absl::Status FromGrpcStatus(const grpc::Status& status);

// Returns `status` with another message, and the same code and ErrorInfo.
absl::Status WithMessage(const absl::Status& status, const std::string& message);

// Returns the name of the ErrorReason, "JOB_NOT_FOUND"; empty without an ErrorInfo.
std::string ReasonOf(const absl::Status& status);
// Returns the value of `key` in the ErrorInfo's metadata; empty if there is none.
std::string MetadataOf(const absl::Status& status, const std::string& key);

// Whether a stream that ended with `status` should be opened again: the connection was lost, or the
// server is starting, stopping or busy.
bool IsConnectionLoss(const absl::Status& status);

// Returns the exit code of a command that ended with `status`.
ExitCode ExitCodeOf(const absl::Status& status);

// Returns a sentence that says what to do about the error, or an empty text.
std::string AdviceFor(const absl::Status& status);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_RPC_ERROR_H_

// Errors of calls: what a server said, by its stable reason, and what that means to the shell and
// to the person in front of it.
//
// Within the client an error is an absl::Status. One that a server made carries its ErrorInfo; one
// that the client made itself (a flag, a file) is InvalidArgument or NotFound without one.
#ifndef MEGATRAIN_CLIENT_CONNECTION_RPC_ERROR_H_
#define MEGATRAIN_CLIENT_CONNECTION_RPC_ERROR_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "client/connection/exit_code.h"

namespace megatrain::client {

absl::Status FromGrpcStatus(const grpc::Status& status);

// `status` with its code and reason, and other words.
absl::Status WithMessage(const absl::Status& status, const std::string& message);

// The name of an ErrorReason, "JOB_NOT_FOUND"; empty if no server gave one.
std::string ReasonOf(const absl::Status& status);
// Of the ErrorInfo's metadata; empty if it has no such key.
std::string MetadataOf(const absl::Status& status, const std::string& key);

// Whether a stream that ended so is to be opened again: the connection was lost, or the server is
// starting, stopping or busy.
bool IsConnectionLoss(const absl::Status& status);

ExitCode ExitCodeOf(const absl::Status& status);

// What to do about it, a sentence or empty.
std::string AdviceFor(const absl::Status& status);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_RPC_ERROR_H_

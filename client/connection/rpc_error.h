// Tells the stable reasons of errors of calls, their exit codes, and advice for people.
//
// Within the client an error is an absl::Status. An error made by the server carries the server's
// google.rpc.ErrorInfo, which has a reason (ErrorReason in error_reason.proto) and metadata. An
// error made by the client (a wrong flag, a missing file) has none.
#ifndef MEGATRAIN_CLIENT_CONNECTION_RPC_ERROR_H_
#define MEGATRAIN_CLIENT_CONNECTION_RPC_ERROR_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "client/connection/exit_code.h"

namespace megatrain::client {

// Returns `status` as an absl::Status with the same code and message, and the server's ErrorInfo.
absl::Status FromGrpcStatus(const grpc::Status& status);

// Returns a Status with `message` and the code and ErrorInfo of `status`.
absl::Status WithMessage(const absl::Status& status, const std::string& message);

// Returns the name of the ErrorReason, such as "JOB_NOT_FOUND". Empty without an ErrorInfo.
std::string ReasonOf(const absl::Status& status);
// Returns the value of `key` in the ErrorInfo's metadata; empty if there is none.
std::string MetadataOf(const absl::Status& status, const std::string& key);

// Returns true if a stream that ended with `status` should be opened again: the connection was
// lost, or the server is starting, stopping or overloaded. These are Unavailable, and without an
// ErrorInfo also Cancelled, Unknown and Internal.
bool IsConnectionLoss(const absl::Status& status);

// Returns the exit code of a command that ended with `status`:
// - kExitDone: OK.
// - kExitDoesNotFit: DOES_NOT_FIT and EXCEEDS_USER_LIMIT.
// - kExitNotPermitted: LIMIT_REACHED, PermissionDenied, Unauthenticated.
// - kExitUsage: InvalidArgument, FailedPrecondition, AlreadyExists, OutOfRange, Unimplemented.
// - kExitNotFound: NotFound.
// - kExitUnreachable: Unavailable, DeadlineExceeded.
// - kExitInterrupted: Cancelled.
// - kExitFailed: any other error.
// The reasons (ReasonOf) decide before the codes.
ExitCode ExitCodeOf(const absl::Status& status);

// Returns a sentence that tells the user what to do about the error; empty if there is no advice.
std::string AdviceFor(const absl::Status& status);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_RPC_ERROR_H_

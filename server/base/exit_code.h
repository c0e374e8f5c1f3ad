// The exit codes of megatraind, and how its commands report errors.
#ifndef MEGATRAIN_SERVER_BASE_EXIT_CODE_H_
#define MEGATRAIN_SERVER_BASE_EXIT_CODE_H_

#include "absl/status/status.h"

namespace megatrain {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,       // any other error
  kExitUsage = 2,        // wrong usage, invalid spec or input, or a state that forbids it
  kExitDoesNotFit = 3,   // too little memory or disk, by the plan or during the run
  kExitInterrupted = 7,  // stopped from outside, resumable
};

// Returns the exit code of a command that ended with `status`: kExitDone for OK, kExitUsage for
// InvalidArgument, NotFound, FailedPrecondition, OutOfRange and Unimplemented, kExitDoesNotFit for
// ResourceExhausted, kExitInterrupted for Cancelled, and kExitFailed for other errors.
ExitCode ExitCodeOf(const absl::Status& status);

// Prints "megatraind: " and the error's message, or its code if it has none, on standard error.
// Prints nothing for OK. Returns ExitCodeOf(status).
int Report(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_BASE_EXIT_CODE_H_

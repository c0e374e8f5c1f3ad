// The exit codes of megatraind.
#ifndef MEGATRAIN_SERVER_BASE_EXIT_CODE_H_
#define MEGATRAIN_SERVER_BASE_EXIT_CODE_H_

#include "absl/status/status.h"

namespace megatrain {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,       // any other error
  kExitUsage = 2,        // usage, invalid spec or input
  kExitDoesNotFit = 3,   // the plan needs more memory or disk than there is
  kExitInterrupted = 7,  // stopped from outside, resumable
};

// Returns the exit code of a command that ended with `status`.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_BASE_EXIT_CODE_H_

// The exit codes of megatrain.
#ifndef MEGATRAIN_CLIENT_CONNECTION_EXIT_CODE_H_
#define MEGATRAIN_CLIENT_CONNECTION_EXIT_CODE_H_

namespace megatrain::client {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,        // the job failed or was cancelled; the daemon's own faults
  kExitUsage = 2,         // usage, invalid job file, a state that does not allow it
  kExitDoesNotFit = 3,    // the node can never run it
  kExitNotFound = 4,      // no such job, checkpoint, context
  kExitNotPermitted = 5,  // the caller is not known, or may not
  kExitUnreachable = 6,   // no answer from the server
  kExitInterrupted = 7,   // Ctrl-C on a view: the job goes on
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_EXIT_CODE_H_

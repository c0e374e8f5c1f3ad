// The exit codes of megatrain. ExitCodeOf (rpc_error.h) says which errors have which code.
#ifndef MEGATRAIN_CLIENT_CONNECTION_EXIT_CODE_H_
#define MEGATRAIN_CLIENT_CONNECTION_EXIT_CODE_H_

namespace megatrain::client {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,      // the job failed or was cancelled; errors not listed below
  kExitUsage = 2,       // wrong usage, invalid job file, or a state that forbids the request
  kExitDoesNotFit = 3,  // needs more than the node has or the user may use (EXCEEDS_USER_LIMIT)
  kExitNotFound = 4,    // no such job, checkpoint or context
  // The caller is unknown or not authorized, or has reached a limit (LIMIT_REACHED) of jobs,
  // exports, streams, calls or bytes on disk.
  kExitNotPermitted = 5,
  kExitUnreachable = 6,  // no answer, none in time, or the server cannot answer now
  kExitInterrupted = 7,  // the user left a view or declined a question; the job is unchanged
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_EXIT_CODE_H_

// The exit codes of megatrain.
#ifndef MEGATRAIN_CLIENT_CONNECTION_EXIT_CODE_H_
#define MEGATRAIN_CLIENT_CONNECTION_EXIT_CODE_H_

namespace megatrain::client {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,      // the job failed or was cancelled; errors not listed below
  kExitUsage = 2,       // wrong usage, invalid job file, or a state that forbids the request
  kExitDoesNotFit = 3,  // more than the node has, or than the user may use (EXCEEDS_USER_LIMIT)
  kExitNotFound = 4,    // no such job, checkpoint or context
  // An unknown or unauthorized caller; LIMIT_REACHED: too many jobs, streams or calls, or too much
  // on disk.
  kExitNotPermitted = 5,
  kExitUnreachable = 6,  // no answer, or none in time: Unavailable, DeadlineExceeded
  kExitInterrupted = 7,  // the user left a view or declined a question; the job is unchanged
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_EXIT_CODE_H_

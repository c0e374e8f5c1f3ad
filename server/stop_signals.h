// Signals that end a daemon.
#ifndef MEGATRAIN_SERVER_STOP_SIGNALS_H_
#define MEGATRAIN_SERVER_STOP_SIGNALS_H_

namespace megatrain {

// SIGINT, SIGTERM and, unless it was ignored (nohup), SIGHUP: the first asks the daemon to save and
// stop; a second ends the process at once with kExitInterrupted, which leaves the last checkpoints.
// SIGPIPE is ignored. Once a process, before it has threads.
void InstallStopSignals();

bool StopRequested();
// Until a stop is requested.
void WaitForStop();

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_STOP_SIGNALS_H_

// What a daemon is told by signals.
#ifndef MEGATRAIN_SERVER_DAEMON_DAEMON_SIGNALS_H_
#define MEGATRAIN_SERVER_DAEMON_DAEMON_SIGNALS_H_

namespace megatrain {

enum class DaemonSignal {
  kStop,    // save and stop
  kReload,  // read the configuration again
};

// SIGINT and SIGTERM: the first asks the daemon to save and stop; a second ends the process at once
// with kExitInterrupted, which leaves the last checkpoints. SIGHUP, unless it was ignored (nohup),
// asks it to read its configuration again, and never ends it. SIGPIPE is ignored. Once a process,
// before it has threads.
void InstallDaemonSignals();

bool StopRequested();
// The next thing that is asked for. Reloads that were asked for since the last call are one; a stop
// goes before them.
DaemonSignal WaitForSignal();

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_DAEMON_SIGNALS_H_

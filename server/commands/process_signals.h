// Signals of a foreground run and of the daemon.
//
// In both, the first SIGINT or SIGTERM asks for an orderly end, and a second ends the process at
// once with kExitInterrupted, which leaves the last checkpoints. SIGHUP keeps being ignored if it
// was (nohup). SIGPIPE is ignored: a closed terminal or pipe ends nothing. A process installs one
// of the two, once, before it has threads.
#ifndef MEGATRAIN_SERVER_COMMANDS_PROCESS_SIGNALS_H_
#define MEGATRAIN_SERVER_COMMANDS_PROCESS_SIGNALS_H_

#include "engine/engine.h"

namespace megatrain {

// The end of a run: it finishes its step and saves. SIGHUP asks for that too, and SIGUSR1 for a
// checkpoint. `control` must live as long as the process.
void InstallTrainingSignals(TrainingControl* control);

// The end of the daemon: it saves and stops. SIGHUP asks it to read its configuration again, and
// never ends it. Nobody is told but those who call the functions below.
void InstallDaemonSignals();

enum class DaemonSignal { kStop, kReload };

// Whether the daemon was asked to stop. May be called from any thread.
bool StopRequested();
// Waits for what is asked for next. All reloads since the last call are one; a stop goes before
// them. One thread at a time. REQUIRES: InstallDaemonSignals was called.
DaemonSignal WaitForSignal();

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_COMMANDS_PROCESS_SIGNALS_H_

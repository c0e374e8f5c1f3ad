// Installs the handlers of signals for a foreground run and for the daemon.
//
// With both, the first SIGINT or SIGTERM asks for an orderly end. A second one ends the process at
// once with kExitInterrupted; the checkpoints written before stay. SIGHUP stays ignored if it was
// ignored before (nohup). SIGPIPE is ignored, so that a closed terminal or pipe ends nothing. A
// process installs one of the two, once.
#ifndef MEGATRAIN_SERVER_COMMANDS_PROCESS_SIGNALS_H_
#define MEGATRAIN_SERVER_COMMANDS_PROCESS_SIGNALS_H_

#include "engine/engine.h"

namespace megatrain {

// Installs the handlers for a foreground run. The first signal makes the run save and end
// (TrainingControl::Stop). SIGHUP does so too, and SIGUSR1 asks for a checkpoint. `control` must
// live as long as the process. With `says` the first signal is answered on standard error.
void InstallTrainingSignals(TrainingControl* control, bool says = true);

// Installs the handlers for the daemon. SIGHUP asks it to read its configuration again, and does
// not end it. The daemon learns of requests only from StopRequested and WaitForSignal.
void InstallDaemonSignals();

// A request to the daemon: to end, or to read its configuration again.
enum class DaemonSignal { kStop, kReload };

// Asks the daemon to stop, as a first signal does. A signal that comes later still counts as the
// first one. May be called from any thread.
void RequestStop();
// Returns true if the daemon was asked to stop. May be called from any thread.
bool StopRequested();
// Waits for the next request and returns it. Reloads that were asked for since the last call are
// returned as one. Once a stop is asked for, every call returns kStop. One thread at a time.
// REQUIRES: InstallDaemonSignals was called.
DaemonSignal WaitForSignal();

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_COMMANDS_PROCESS_SIGNALS_H_

// Signals of a foreground run.
#ifndef MEGATRAIN_SERVER_COMMANDS_TRAINING_SIGNALS_H_
#define MEGATRAIN_SERVER_COMMANDS_TRAINING_SIGNALS_H_

#include "engine/engine.h"

namespace megatrain {

// SIGINT, SIGTERM and, unless it was ignored (nohup), SIGHUP: the first asks the run to finish its
// step, save and end; a second ends the process at once with kExitInterrupted, which leaves the
// last checkpoint. SIGUSR1 asks for a checkpoint. SIGPIPE is ignored: a closed terminal or pipe
// does not end training. `control` must live as long as the process; one call a process.
void InstallTrainingSignals(TrainingControl* control);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_COMMANDS_TRAINING_SIGNALS_H_

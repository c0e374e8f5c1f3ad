// Starts MPI's processes where torchrun has started a job on several machines: torchrun starts a
// process for each rank, but no MPI. The first process of each machine becomes its launcher, which
// starts this program again for each rank of the machine as mpirun would, and the other processes
// end at once. The launchers meet at torchrun's MASTER_ADDR (meeting.h), and MPI asks them for what
// it must know (pmix_server.h).
#ifndef MEGATRAIN_SERVER_LAUNCH_TORCHRUN_MACHINE_H_
#define MEGATRAIN_SERVER_LAUNCH_TORCHRUN_MACHINE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/comm/launch_environment.h"
#include "server/launch/meeting.h"

namespace megatrain {

// Returns where the launchers of a job meet. The port is MASTER_PORT, or the one above it where
// torchrun's agent listens at MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE=True). The job's
// name is TORCHELASTIC_RUN_ID. Returns InvalidArgument if there is no port above MASTER_PORT.
absl::StatusOr<MeetingPlace> TorchrunMeetingPlace(const LaunchEnvironment& launched,
                                                  EnvironmentLookup get_environment);

// Runs this program, with this process's arguments, for each rank of this machine, and returns the
// exit code of the first that failed (kExitFailed if a signal ended it), else kExitInterrupted if
// one was interrupted, else kExitDone.
//
// First waits for the other machines, for three times `timeout` at most. SIGINT, SIGTERM or SIGHUP
// ends this wait with Cancelled. Later these, SIGUSR1 and SIGUSR2 are passed on to the processes,
// unless this one ignores them. They stay blocked when this returns. Once a process has failed,
// those that have not ended within `timeout` and ten seconds are killed; all are killed if this
// process is. Errors: those of TorchrunMeetingPlace, Meeting and PmixServer, and Unavailable if a
// process cannot be started or a temporary directory made. It must be called before this process
// has started a thread. REQUIRES: launched.launcher == Launcher::kTorchrun, launched.local_rank ==
// 0.
absl::StatusOr<int> RunTorchrunMachine(const LaunchEnvironment& launched, absl::Duration timeout);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_LAUNCH_TORCHRUN_MACHINE_H_

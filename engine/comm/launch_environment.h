// Reads the rank of this process and the number of ranks from the environment variables that a
// launcher (mpirun, torchrun, srun) sets.
#ifndef MEGATRAIN_ENGINE_COMM_LAUNCH_ENVIRONMENT_H_
#define MEGATRAIN_ENGINE_COMM_LAUNCH_ENVIRONMENT_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace megatrain {

enum class Launcher {
  kNone,      // one process
  kOpenMpi,   // mpirun: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
  kTorchrun,  // RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
  // A step of srun: SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODEID, and
  // SLURM_STEP_TASKS_PER_NODE or else SLURM_TASKS_PER_NODE. SLURMD_NODENAME names the node.
  kSlurm,
};

struct LaunchEnvironment {
  Launcher launcher = Launcher::kNone;
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;   // among the ranks of this node
  int local_ranks = 1;  // of this node
  std::string node;     // its name
  // Torchrun's meeting place (MASTER_ADDR, MASTER_PORT); empty and 0 otherwise.
  std::string master_address;
  int master_port = 0;
};

// Returns the name of this machine, or "" if the system does not tell it.
std::string HostName();

// A function that returns a variable's value, or null if it is not set, as getenv does.
using EnvironmentLookup = absl::FunctionRef<const char*(const char* name)>;

// Reads the variables of the first launcher, in the order of Launcher, that has set its own. Slurm
// counts only within a step of srun (SLURM_STEP_ID). mpirun and torchrun come before Slurm because
// they may start their processes within such a step. Without a launcher the result is that of a
// process alone. `host_name` is the node's name if the launcher does not tell it. Returns
// InvalidArgument, with the variable's name, for values that are missing, not numbers or out of
// range. Returns it also if PMIX_RANK names another rank than mpirun's or srun's variable, or RANK
// another than mpirun's.
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(EnvironmentLookup get_environment,
                                                        const std::string& host_name);

// Returns the rank and the local rank that the launchers' variables tell, without checking them:
// each by the first launcher whose variable is a number, and 0 if there is none. After an error of
// ReadLaunchEnvironment these numbers decide which process reports the error. The node is
// `host_name`, and the other fields are those of a process alone.
LaunchEnvironment ApparentEnvironment(EnvironmentLookup get_environment,
                                      const std::string& host_name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_LAUNCH_ENVIRONMENT_H_

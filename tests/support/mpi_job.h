// How tests start a job of several processes by mpirun.
#ifndef MEGATRAIN_TESTS_SUPPORT_MPI_JOB_H_
#define MEGATRAIN_TESTS_SUPPORT_MPI_JOB_H_

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/child_process.h"

namespace megatrain {

// Returns why there can be no such job here. If there can, sets MEGATRAIN_MPI and TSAN_OPTIONS for
// it, and returns nullopt.
std::optional<std::string> WhyNoMpi();

// Returns the beginning of a command that runs the program behind it in a network of its own.
std::vector<std::string> PrivateNetworkCommand();

// Returns the beginning of a command that runs `ranks` processes of the program behind it by
// mpirun. They have a network of their own, because MPI listens on all interfaces.
std::vector<std::string> MpirunCommand(int ranks);

// Returns the processes called `name` that `mpirun` has started, by rank. Those that ended are left
// out.
std::map<int, pid_t> RanksOf(const ChildProcess& mpirun, const std::string& name);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SUPPORT_MPI_JOB_H_

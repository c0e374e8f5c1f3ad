#include "tests/support/mpi_job.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

constexpr char kMpirun[] = "/usr/bin/mpirun";
constexpr char kLibrary[] = "server/libmegatrain-mpi.so";
constexpr char kPrivateNetwork[] = "tests/support/private_network";

// The value of a variable in a process's environment; "" if it is not there.
std::string EnvironmentOf(const std::filesystem::path& process, const std::string& name) {
  std::istringstream variables(ReadFileOrEmpty(process / "environ"));
  for (std::string variable; std::getline(variables, variable, '\0');) {
    if (variable.starts_with(name + "=")) return variable.substr(name.size() + 1);
  }
  return "";
}

}  // namespace

std::optional<std::string> WhyNoMpi() {
  if (!std::filesystem::exists(kLibrary)) {
    return "built without MPI (deploy/install-deps.sh --mpi)";
  }
  if (access(kMpirun, X_OK) != 0) return std::string("there is no ") + kMpirun;
  const TestDirectory directory;
  ChildProcess network({kPrivateNetwork, "/bin/true"}, directory / "log");
  if (network.Wait() != 0) return network.Output();
  // MPI's own locks are not seen by a thread sanitizer.
  setenv("TSAN_OPTIONS", "ignore_noninstrumented_modules=1", /*overwrite=*/1);
  setenv("MEGATRAIN_MPI", std::filesystem::absolute(kLibrary).c_str(), 1);
  return std::nullopt;
}

std::vector<std::string> PrivateNetworkCommand() { return {kPrivateNetwork}; }

std::vector<std::string> MpirunCommand(int ranks) {
  return {kPrivateNetwork,
          kMpirun,
          "--allow-run-as-root",
          "--oversubscribe",
          "-n",
          std::to_string(ranks),
          "--mca",
          "btl_tcp_if_include",
          "lo"};
}

std::map<int, pid_t> RanksOf(const ChildProcess& mpirun, const std::string& name) {
  std::map<int, pid_t> ranks;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    const std::string number = process.path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    // "PID (NAME) STATE PARENT ..."
    const std::string stat = ReadFileOrEmpty(process.path() / "stat");
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (close == std::string::npos || stat.substr(open + 1, close - open - 1) != name) continue;
    std::istringstream rest(stat.substr(close + 1));
    std::string state;
    pid_t parent = 0;
    rest >> state >> parent;
    const std::string rank = EnvironmentOf(process.path(), "OMPI_COMM_WORLD_RANK");
    if (parent == mpirun.pid() && !rank.empty()) ranks[std::stoi(rank)] = std::stoi(number);
  }
  return ranks;
}

}  // namespace megatrain

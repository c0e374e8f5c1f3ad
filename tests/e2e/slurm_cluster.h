// A Slurm of two nodes, n1 and n2, on this machine: munged, slurmctld and two slurmd of its own,
// each node under its own host name, with a boot and a disk of its own. Jobs start within a second.
#ifndef MEGATRAIN_TESTS_E2E_SLURM_CLUSTER_H_
#define MEGATRAIN_TESTS_E2E_SLURM_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/support/child_process.h"

namespace megatrain {

class SlurmCluster {
 public:
  // Returns which of its programs and libraries is not installed here, or "".
  static std::string Missing();

  // Starts it, with its files in `directory`, and sets the environment variables by which Slurm's
  // commands and MPI find it. REQUIRES: the path is short, and everybody may enter it, as Munge
  // wants; the process is in a private system, since names and addresses are fixed.
  explicit SlurmCluster(const std::string& directory);
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  // Waits until both nodes take jobs. Returns "" or the logs.
  std::string WaitUntilReady();

  // Returns the path of a directory that each node has for itself. Outside the nodes, its content
  // on `node` lies in disk() + "." + node.
  std::string disk() const { return directory_ + "/disk"; }

  // Runs a command to its end. Returns what it said, without the last line break.
  std::string Command(const std::vector<std::string>& arguments);

 private:
  void Start(const std::string& name, const std::vector<std::string>& arguments);

  const std::string directory_;
  std::vector<std::unique_ptr<ChildProcess>> daemons_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_E2E_SLURM_CLUSTER_H_

// PmixServer starts MPI in the processes of this machine for a launcher that starts no MPI itself.
// It gives each process an environment in which MPI finds the server, tells MPI which processes the
// job has on which machines, and passes what they must know of each other to the servers of the
// other machines.
//
// Thread safety: one thread at a time.
#ifndef MEGATRAIN_ENGINE_COMM_MPI_PMIX_SERVER_H_
#define MEGATRAIN_ENGINE_COMM_MPI_PMIX_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/comm/mpi/pmix_shim.h"

namespace megatrain {

struct PmixJob {
  struct Machine {
    std::string name;  // without comma, under 50 bytes; no two machines have the same
    int ranks = 0;     // the first machine has the first ranks
  };
  std::string name;       // unique to the job, the same on all machines, at most 255 bytes
  std::string directory;  // exists, only this job's, for files of MPI; must outlive the server
  std::vector<Machine> machines;
  int machine = 0;  // this one
};

class PmixServer {
 public:
  // Gives the launchers of all machines the data of this machine's processes, and returns the data
  // of all machines in their order, one behind the other. Its error ends MPI's start in this
  // machine's processes. It is called by one thread at a time, and may wait.
  using Exchange = std::function<absl::StatusOr<std::string>(const std::string& data)>;

  // Starts the server of this process, which may have one, once. Errors:
  // - those of MpiLibraryFunction, for $MEGATRAIN_MPI or the installed library;
  // - Unimplemented, if that was built without PMIx;
  // - FailedPrecondition, if it is of another version than this program;
  // - Internal, for errors of PMIx.
  static absl::StatusOr<std::unique_ptr<PmixServer>> Start(const PmixJob& job, Exchange exchange);
  // Waits for an exchange that is under way. The processes should have ended.
  ~PmixServer();
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;

  // Returns the variables ("NAME=VALUE") with which a process of this machine becomes `rank` of the
  // job when it starts MPI. Returns Internal for errors of PMIx.
  absl::StatusOr<std::vector<std::string>> EnvironmentOf(int rank) const;

 private:
  PmixServer(const MegatrainPmix* pmix, Exchange exchange)
      : pmix_(pmix), exchange_(std::move(exchange)) {}
  // MegatrainPmixJob::exchange.
  static void BeginExchange(void* server, const char* data, size_t bytes, void* ticket);
  absl::Status Checked(int error, const char* call) const;

  const MegatrainPmix* const pmix_;
  const Exchange exchange_;

  Mutex mutex_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread exchanging_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_MPI_PMIX_SERVER_H_

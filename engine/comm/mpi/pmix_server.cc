#include "engine/comm/mpi/pmix_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/comm/mpi/mpi_library.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<PmixServer>> PmixServer::Start(const PmixJob& job,
                                                              Exchange exchange) {
  const std::string path = MpiLibraryPath();
  MT_ASSIGN_OR_RETURN(void* const address, MpiLibraryFunction(path, MEGATRAIN_PMIX_FUNCTION));
  if (address == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        path,
        " was built without PMIx, by which MPI's processes are started; use mpirun, or "
        "install libpmix-dev and build again"));
  }
  const MegatrainPmix* const pmix = reinterpret_cast<MegatrainPmixFunction>(address)();
  if (pmix->version != MEGATRAIN_PMIX_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of another version than this program; install both anew"));
  }
  std::vector<const char*> names;
  std::vector<int> ranks;
  for (const PmixJob::Machine& machine : job.machines) {
    names.push_back(machine.name.c_str());
    ranks.push_back(machine.ranks);
  }
  // Its address is PMIx's from here on.
  std::unique_ptr<PmixServer> server(new PmixServer(pmix, std::move(exchange)));
  const MegatrainPmixJob given = {.name = job.name.c_str(),
                                  .directory = job.directory.c_str(),
                                  .machines = static_cast<int>(names.size()),
                                  .machine_names = names.data(),
                                  .machine_ranks = ranks.data(),
                                  .machine = job.machine,
                                  .exchange = BeginExchange,
                                  .context = server.get()};
  MT_RETURN_IF_ERROR(server->Checked(pmix->start(&given), "PMIx_server_init"));
  return server;
}

PmixServer::~PmixServer() {
  std::thread exchanging;
  {
    MutexLock lock(&mutex_);
    ends_ = true;
    exchanging = std::move(exchanging_);
  }
  if (exchanging.joinable()) exchanging.join();
  pmix_->stop();
}

absl::StatusOr<std::vector<std::string>> PmixServer::EnvironmentOf(int rank) const {
  std::vector<std::string> variables;
  const int error = pmix_->environment(rank, &variables, [](void* list, const char* variable) {
    static_cast<std::vector<std::string>*>(list)->push_back(variable);
  });
  MT_RETURN_IF_ERROR(Checked(error, "PMIx_server_setup_fork"));
  return variables;
}

void PmixServer::BeginExchange(void* context, const char* data, size_t bytes, void* ticket) {
  PmixServer* const server = static_cast<PmixServer*>(context);
  MutexLock lock(&server->mutex_);
  if (server->ends_) return server->pmix_->exchanged(ticket, nullptr, 0);
  // The one before has ended, but for the thread.
  if (server->exchanging_.joinable()) server->exchanging_.join();
  server->exchanging_ = std::thread(
      [server, ticket, own = data == nullptr ? std::string() : std::string(data, bytes)] {
        const absl::StatusOr<std::string> all = server->exchange_(own);
        server->pmix_->exchanged(ticket, all.ok() ? all->data() : nullptr,
                                 all.ok() ? all->size() : 0);
      });
}

absl::Status PmixServer::Checked(int error, const char* call) const {
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("PMIx: ", call, ": ", pmix_->describe(error), " (", error, ")"));
}

}  // namespace megatrain

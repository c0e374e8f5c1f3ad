#include "engine/comm/mpi/pmix_shim.h"

#include <pmix.h>
#include <pmix_server.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

namespace {

struct Job {
  std::string name;
  std::string directory;
  std::vector<std::string> machine_names;
  std::vector<int> machine_ranks;
  int machine = 0;
  void (*exchange)(void*, const char*, size_t, void*) = nullptr;
  void* context = nullptr;
};
// PMIx has one server a process. Its thread reads this for as long as it runs.
Job* job = nullptr;

struct Ticket {
  pmix_modex_cbfunc_t done;
  void* data;
};

// Information of PMIx that grows.
class InfoList {
 public:
  InfoList() { infos_.reserve(16); }
  ~InfoList() {
    for (pmix_info_t& info : infos_) PMIX_INFO_DESTRUCT(&info);
  }
  InfoList(const InfoList&) = delete;
  InfoList& operator=(const InfoList&) = delete;
  void Add(const char* key, const std::string& value) {
    PMIX_INFO_LOAD(&New(), key, value.c_str(), PMIX_STRING);
  }
  void Add(const char* key, uint32_t value) { PMIX_INFO_LOAD(&New(), key, &value, PMIX_UINT32); }
  void AddRank(const char* key, pmix_rank_t value) {
    PMIX_INFO_LOAD(&New(), key, &value, PMIX_PROC_RANK);
  }
  void AddShort(const char* key, uint16_t value) {
    PMIX_INFO_LOAD(&New(), key, &value, PMIX_UINT16);
  }
  void AddTrue(const char* key) {
    const bool value = true;
    PMIX_INFO_LOAD(&New(), key, &value, PMIX_BOOL);
  }
  // Takes what is in the list.
  void AddList(const char* key, InfoList* list) {
    pmix_info_t& info = New();
    PMIX_LOAD_KEY(info.key, key);
    info.value.type = PMIX_DATA_ARRAY;
    PMIX_DATA_ARRAY_CREATE(info.value.data.darray, list->infos_.size(), PMIX_INFO);
    memcpy(info.value.data.darray->array, list->infos_.data(),
           list->infos_.size() * sizeof(pmix_info_t));
    list->infos_.clear();
  }
  pmix_info_t* data() { return infos_.data(); }
  size_t size() const { return infos_.size(); }

 private:
  pmix_info_t& New() {
    infos_.emplace_back();
    PMIX_INFO_CONSTRUCT(&infos_.back());
    return infos_.back();
  }
  std::vector<pmix_info_t> infos_;
};

// PMIx calls these on its thread.

pmix_status_t Acknowledge(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

// The process ends by itself, and its launcher sees that.
pmix_status_t Aborted(const pmix_proc_t*, void*, int, const char*, pmix_proc_t*, size_t,
                      pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

// PMIx removes the files of processes, for which MPI asks it, where this function is given.
pmix_status_t ControlJob(const pmix_proc_t*, const pmix_proc_t[], size_t, const pmix_info_t[],
                         size_t, pmix_info_cbfunc_t, void*) {
  return PMIX_ERR_NOT_SUPPORTED;
}

// A fence of all processes. MPI asks for no other while a job has one group of processes.
pmix_status_t Fence(const pmix_proc_t* processes, size_t count, const pmix_info_t*, size_t,
                    char* data, size_t bytes, pmix_modex_cbfunc_t done, void* done_data) {
  if (count != 1 || processes->rank != PMIX_RANK_WILDCARD) return PMIX_ERR_NOT_SUPPORTED;
  job->exchange(job->context, data, bytes, new Ticket{done, done_data});
  free(data);  // it is the host's
  return PMIX_SUCCESS;
}

// All processes have exchanged what they have: there is nothing more of one.
pmix_status_t NothingMore(const pmix_proc_t*, const pmix_info_t*, size_t, pmix_modex_cbfunc_t,
                          void*) {
  return PMIX_ERR_NOT_FOUND;
}

std::string Joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

// Fills `infos` with the facts of the job that every process may ask for.
pmix_status_t Describe(int first_rank, int ranks, InfoList* infos) {
  std::vector<std::string> ranks_of_machines;
  std::string local_ranks;
  int rank = 0;
  for (size_t machine = 0; machine < job->machine_names.size(); ++machine) {
    std::vector<std::string> numbers;
    for (int number = 0; number < job->machine_ranks[machine]; ++number, ++rank) {
      numbers.push_back(std::to_string(rank));
      InfoList process;
      process.AddRank(PMIX_RANK, static_cast<pmix_rank_t>(rank));
      process.Add(PMIX_APPNUM, uint32_t{0});
      process.AddShort(PMIX_LOCAL_RANK, static_cast<uint16_t>(number));
      process.AddShort(PMIX_NODE_RANK, static_cast<uint16_t>(number));
      process.Add(PMIX_NODEID, static_cast<uint32_t>(machine));
      process.Add(PMIX_HOSTNAME, job->machine_names[machine]);
      process.Add(PMIX_PROCDIR, job->directory + "/" + std::to_string(rank));
      infos->AddList(PMIX_PROC_DATA, &process);
    }
    ranks_of_machines.push_back(Joined(numbers, ","));
  }
  char* machines = nullptr;
  char* processes = nullptr;
  pmix_status_t status = PMIx_generate_regex(Joined(job->machine_names, ",").c_str(), &machines);
  if (status == PMIX_SUCCESS) {
    status = PMIx_generate_ppn(Joined(ranks_of_machines, ";").c_str(), &processes);
  }
  const std::unique_ptr<char, void (*)(void*)> own_machines(machines, free);
  const std::unique_ptr<char, void (*)(void*)> own_processes(processes, free);
  if (status != PMIX_SUCCESS) return status;
  infos->Add(PMIX_UNIV_SIZE, static_cast<uint32_t>(rank));
  infos->Add(PMIX_JOB_SIZE, static_cast<uint32_t>(rank));
  infos->Add(PMIX_MAX_PROCS, static_cast<uint32_t>(rank));
  infos->Add(PMIX_NUM_NODES, static_cast<uint32_t>(job->machine_names.size()));
  infos->Add(PMIX_NODE_MAP, std::string(machines));
  infos->Add(PMIX_PROC_MAP, std::string(processes));
  infos->Add(PMIX_LOCAL_PEERS, ranks_of_machines[static_cast<size_t>(job->machine)]);
  infos->Add(PMIX_LOCAL_SIZE, static_cast<uint32_t>(ranks));
  infos->AddRank(PMIX_LOCALLDR, static_cast<pmix_rank_t>(first_rank));
  // MPI keeps its files there, and its launcher removes them.
  infos->Add(PMIX_TMPDIR, job->directory);
  infos->Add(PMIX_NSDIR, job->directory);
  infos->AddTrue(PMIX_TDIR_RMCLEAN);
  return PMIX_SUCCESS;
}

pmix_proc_t Process(int rank) {
  pmix_proc_t process;
  PMIX_LOAD_PROCID(&process, job->name.c_str(), static_cast<pmix_rank_t>(rank));
  return process;
}

int Start(const MegatrainPmixJob* given) {
  if (job != nullptr) return PMIX_ERR_NOT_SUPPORTED;
  job = new Job{given->name,
                given->directory,
                {given->machine_names, given->machine_names + given->machines},
                {given->machine_ranks, given->machine_ranks + given->machines},
                given->machine,
                given->exchange,
                given->context};
  static pmix_server_module_t functions = {};
  functions.client_connected = Acknowledge;
  functions.client_finalized = Acknowledge;
  functions.abort = Aborted;
  functions.fence_nb = Fence;
  functions.direct_modex = NothingMore;
  functions.job_control = ControlJob;
  InfoList options;
  options.Add(PMIX_SERVER_TMPDIR, job->directory);
  pmix_status_t status = PMIx_server_init(&functions, options.data(), options.size());
  if (status != PMIX_SUCCESS) return status;

  int first_rank = 0;
  for (int machine = 0; machine < job->machine; ++machine) {
    first_rank += job->machine_ranks[static_cast<size_t>(machine)];
  }
  const int ranks = job->machine_ranks[static_cast<size_t>(job->machine)];
  InfoList infos;
  status = Describe(first_rank, ranks, &infos);
  if (status != PMIX_SUCCESS) return status;
  // Without a callback these calls wait.
  const auto checked = [](pmix_status_t called) {
    return called == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : called;
  };
  status = checked(PMIx_server_register_nspace(job->name.c_str(), ranks, infos.data(), infos.size(),
                                               nullptr, nullptr));
  for (int rank = first_rank; rank < first_rank + ranks && status == PMIX_SUCCESS; ++rank) {
    mkdir((job->directory + "/" + std::to_string(rank)).c_str(), 0700);
    const pmix_proc_t process = Process(rank);
    status = checked(
        PMIx_server_register_client(&process, getuid(), getgid(), nullptr, nullptr, nullptr));
  }
  return status;
}

int Environment(int rank, void* context, void (*set)(void* context, const char* variable)) {
  const pmix_proc_t process = Process(rank);
  char** variables = nullptr;
  const pmix_status_t status = PMIx_server_setup_fork(&process, &variables);
  for (char** variable = variables; variable != nullptr && *variable != nullptr; ++variable) {
    if (status == PMIX_SUCCESS) set(context, *variable);
    free(*variable);
  }
  free(variables);
  return status;
}

void Exchanged(void* given, const char* data, size_t bytes) {
  const std::unique_ptr<Ticket> ticket(static_cast<Ticket*>(given));
  if (data == nullptr)
    return ticket->done(PMIX_ERR_UNREACH, nullptr, 0, ticket->data, nullptr, nullptr);
  char* const copy = static_cast<char*>(malloc(bytes + 1));
  if (copy == nullptr)
    return ticket->done(PMIX_ERR_NOMEM, nullptr, 0, ticket->data, nullptr, nullptr);
  memcpy(copy, data, bytes);
  ticket->done(PMIX_SUCCESS, copy, bytes, ticket->data, free, copy);
}

void Stop() {
  // It also removes what processes that were killed have left.
  PMIx_server_deregister_nspace(job->name.c_str(), nullptr, nullptr);
  PMIx_server_finalize();
}

constexpr MegatrainPmix kFunctions = {
    MEGATRAIN_PMIX_VERSION, PMIx_Error_string, Start, Environment, Exchanged, Stop,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const MegatrainPmix* megatrain_pmix(void) {
  return &kFunctions;
}

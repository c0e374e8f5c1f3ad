#include "server/commands/job_processes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "engine/base/processors.h"
#include "engine/base/status.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/exchange.h"
#include "engine/comm/mpi_communicator.h"
#include "server/base/exit_code.h"
#include "server/base/version.h"

namespace megatrain {
namespace {

// The same for all processes on a running machine, whatever names they see.
std::string MachineId() {
  const absl::StatusOr<std::string> id =
      ReadWholeFile(PosixFileSystem(), "/proc/sys/kernel/random/boot_id", 100);
  return id.ok() ? *id : HostName();
}

std::string ProcessorSet() {
  std::vector<int> numbers;
  for (const Processor& processor : AllowedProcessors()) numbers.push_back(processor.number);
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (const int number : numbers) absl::StrAppend(&text, number, ",");
  return text;
}

// Ends this process if it does not meet the others in time: MPI waits for one that never comes, or
// has died, for ever, and can be told nothing meanwhile.
class StartWatch {
 public:
  StartWatch(const LaunchEnvironment& launched, absl::Duration patience)
      : thread_([this, &launched, patience] { Watch(launched, patience); }) {}
  ~StartWatch() {
    {
      MutexLock lock(&mutex_);
      met_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

 private:
  void Watch(const LaunchEnvironment& launched, absl::Duration patience) {
    const absl::Time end = absl::Now() + patience;
    MutexLock lock(&mutex_);
    while (!met_ && absl::Now() < end) {
      changed_.WaitFor(&mutex_, absl::ToDoubleSeconds(end - absl::Now()));
    }
    if (met_) return;
    std::fprintf(stderr,
                 "megatraind: rank %d on %s: the other processes of the job did not all start "
                 "within %s (ten times --rank-timeout); see what the launcher says of them\n",
                 launched.rank, launched.node.c_str(), absl::FormatDuration(patience).c_str());
    _exit(kExitFailed);
  }

  Mutex mutex_;
  CondVar changed_;
  bool met_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the rest
};

// The processes exchange memory as it lies, so they must be of one program.
absl::Status CheckSameProgram(Communicator& control) {
  int64_t bytes = 0;
  MT_ASSIGN_OR_RETURN(const std::string hash,
                      HashFile(PosixFileSystem(), "/proc/self/exe", &bytes));
  const std::string own = absl::StrCat(kVersion, " (", hash, ") on ", HostName());
  const auto program = [](absl::string_view text) { return text.substr(0, text.find(')')); };
  std::string first;
  absl::Status status;
  MT_RETURN_IF_ERROR(ExchangeBytes(&control, own, [&](int rank, absl::string_view bytes) {
    if (rank == 0) first = std::string(bytes);
    if (!status.ok() || program(bytes) == program(first)) return;
    status = absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " runs megatraind ", bytes, ", and rank 0 runs ", first,
                     "; install the same one on all machines of the job"));
  }));
  return status;
}

}  // namespace

absl::StatusOr<JobProcesses> JobProcesses::Read() {
  JobProcesses processes;
  MT_ASSIGN_OR_RETURN(
      processes.launched_,
      ReadLaunchEnvironment([](const char* name) { return std::getenv(name); }, HostName()));
  return processes;
}

bool JobProcesses::Tells(const absl::Status& error) const {
  if (leads()) return true;
  return set_.has_value() ? IsMissingRank(error, 0) : launched_.local_rank == 0;
}

absl::Status JobProcesses::Join(absl::Duration timeout) {
  if (!several()) return absl::OkStatus();
  if (launched_.launcher == Launcher::kTorchrun) {
    return absl::FailedPreconditionError(
        absl::StrCat("torchrun has started ", launched_.ranks,
                     " processes on several machines, and between machines they exchange data by "
                     "MPI, which it does not start; use mpirun, or srun --mpi=pmix"));
  }
  // MPI would end the process, and blame the way it was built.
  if (launched_.launcher == Launcher::kSlurm && std::getenv("PMIX_RANK") == nullptr &&
      std::getenv("PMI_RANK") == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("srun has started ", launched_.ranks,
                     " processes without telling MPI of it; start them with srun --mpi=pmix"));
  }
  std::optional<StartWatch> watch(std::in_place, launched_, 10 * timeout);
  MT_ASSIGN_OR_RETURN(CommunicatorSet set,
                      CreateMpiCommunicators({.deadline = timeout, .machine = MachineId()}));
  watch.reset();
  if (const int ranks = set.control->ranks(); ranks != launched_.ranks) {
    return absl::FailedPreconditionError(
        absl::StrCat("the launcher has started ", launched_.ranks, " processes, and MPI has ",
                     ranks, " of them; ",
                     launched_.launcher == Launcher::kSlurm
                         ? "start them with srun --mpi=pmix"
                         : "start them with the mpirun of the MPI that megatraind was built with"));
  }
  set_ = std::move(set);
  return CheckSameProgram(*set_->control);
}

absl::Status JobProcesses::EndAll(const absl::Status& error) {
  return AbortAll(set_.has_value() ? set_->control.get() : nullptr, error);
}

absl::Status JobProcesses::TakeDevices(int64_t& devices) const {
  if (!of_torchrun() || devices == launched_.ranks) return absl::OkStatus();
  if (devices != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine.devices: torchrun has started ", launched_.ranks,
                     " processes, a device each; leave the key out, or start as many as it says"));
  }
  devices = launched_.ranks;
  return absl::OkStatus();
}

absl::Status JobProcesses::ShareMachine(EngineHostOptions& options) {
  if (!set_.has_value()) return absl::OkStatus();
  return DivideMachine(*set_->control, MachineId(), ProcessorSet(), options);
}

absl::Status DivideMachine(Communicator& control, const std::string& machine,
                           const std::string& processors, EngineHostOptions& options) {
  int sharers = 0, number = 0, processor_sharers = 0;
  // Machine and processors are compared as texts, a zero between them.
  std::string own = machine;
  own.push_back('\0');
  own += processors;
  MT_RETURN_IF_ERROR(ExchangeBytes(&control, own, [&](int rank, absl::string_view bytes) {
    const bool here = bytes.substr(0, bytes.find('\0')) == machine;
    sharers += here ? 1 : 0;
    number += here && rank < control.rank() ? 1 : 0;
    processor_sharers += bytes == own ? 1 : 0;
  }));
  options.sharers = sharers;
  options.process = number;
  options.threads = std::max(1, AvailableProcessors() / processor_sharers);
  return absl::OkStatus();
}

}  // namespace megatrain

#include "server/commands/job_processes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/processors.h"
#include "engine/base/status.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/exchange.h"
#include "engine/comm/mpi/mpi_communicator.h"
#include "server/base/exit_code.h"
#include "server/base/version.h"
#include "server/commands/deadline.h"
#include "server/commands/report.h"

namespace megatrain {
namespace {

// By so many timeouts the processes have met, or have left each other. Those of one machine begin
// together. Machines begin tens of seconds apart where each runs a prolog, pulls an image, or where
// hundreds read the program from one disk; MPI itself takes seconds for thousands of processes.
constexpr int kMeetingTimeouts = 3;
// How long processes leave it to the first one to say what may be wrong on all machines. A launcher
// ends them once that has exited.
constexpr absl::Duration kFirstSpeaks = absl::Seconds(2);
// How long a process that waits for others leaves it to one that hangs itself to say so: all find
// out within a few seconds.
constexpr absl::Duration kCulpritSpeaks = absl::Seconds(4);
// How long MPI may take to tell the others of the end of one that hangs.
constexpr absl::Duration kFarewell = absl::Seconds(1);
// When it is MPI itself that hangs.
constexpr absl::Duration kEndingAlone = absl::Seconds(25);

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

JobProcesses JobProcesses::Read() {
  const auto get = [](const char* name) { return std::getenv(name); };
  JobProcesses processes;
  absl::StatusOr<LaunchEnvironment> launched = ReadLaunchEnvironment(get, HostName());
  processes.of_machine_ = !launched.ok();
  processes.read_ = launched.status();
  processes.launched_ = launched.ok() ? *std::move(launched) : ApparentEnvironment(get, HostName());
  return processes;
}

absl::Status JobProcesses::CheckStartedWithMpi() const {
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
  return absl::OkStatus();
}

absl::Status JobProcesses::Join(absl::Duration timeout) {
  const auto named = [this](const absl::Status& error) {
    return absl::Status(error.code(), absl::StrCat("on ", launched_.node, ": ", error.message()));
  };
  timeout_ = timeout;
  if (!read_.ok()) return named(read_);
  if (!several()) return absl::OkStatus();
  MT_RETURN_IF_ERROR(CheckStartedWithMpi());
  // PMIx, by which MPI starts, has a name for the job.
  const char* const job = std::getenv("PMIX_NAMESPACE");
  here_ = std::make_unique<LocalProcesses>(job != nullptr ? job : "", launched_.local_rank);
  {
    const Deadline begun(timeout, [this] { EndUnlessAllBegan(); });
    const Deadline met(kMeetingTimeouts * timeout, [this] { EndUnmet(); });
    absl::StatusOr<CommunicatorSet> set =
        CreateMpiCommunicators({.deadline = timeout, .machine = MachineId()});
    of_machine_ = !set.ok();
    if (!set.ok()) return named(set.status());
    if (const int ranks = set->control->ranks(); ranks != launched_.ranks) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the launcher has started ", launched_.ranks, " processes, and MPI has ", ranks,
          " of them; ",
          launched_.launcher == Launcher::kSlurm
              ? "start them with srun --mpi=pmix"
              : "start them with the mpirun of the MPI that megatraind was built with"));
    }
    set_ = *std::move(set);
  }
  return CheckSameProgram(*set_->control);
}

void JobProcesses::EndUnlessAllBegan() const {
  const std::vector<int> missing = here_->Missing(launched_.local_ranks);
  if (missing.empty()) return;
  int lowest = 0;
  while (std::find(missing.begin(), missing.end(), lowest) != missing.end()) ++lowest;
  // On one machine their numbers are their ranks.
  const std::string who =
      launched_.local_ranks == launched_.ranks
          ? RankList(missing)
          : absl::StrCat("of the ", launched_.local_ranks, " processes of this machine number ",
                         absl::StrJoin(missing, ", "), " (from 0)");
  TellUnmet(absl::DeadlineExceededError(absl::StrCat(
                "on ", launched_.node, ": ", who, missing.size() == 1 ? " is" : " are",
                " not there ", absl::FormatDuration(timeout_),
                " after the start (--rank-timeout): not started, stuck before it runs, or dead; "
                "see what the launcher says")),
            /*first=*/lowest == launched_.local_rank, /*later=*/false);
  // Those that began a moment later look too, and must find this one.
  if (lowest == launched_.local_rank) absl::SleepFor(kFirstSpeaks);
  _exit(kExitFailed);
}

void JobProcesses::EndUnmet() const {
  TellUnmet(absl::DeadlineExceededError(absl::StrCat(
                "on ", launched_.node, ": MPI did not bring the ", launched_.ranks,
                " processes of the job together within ",
                absl::FormatDuration(kMeetingTimeouts * timeout_),
                " (three times --rank-timeout); see what the launcher says of the other machines, "
                "and give --rank-timeout more where they begin later")),
            leads(), /*later=*/launched_.local_rank == 0);
  _exit(kExitFailed);
}

void JobProcesses::TellUnmet(const absl::Status& error, bool first, bool later) {
  if (!first) absl::SleepFor(kFirstSpeaks);
  if (first || later) Report(error);
}

std::function<double(double seconds)> JobProcesses::Share() {
  if (!set_.has_value()) return nullptr;
  return
      [control = set_->control.get()](double seconds) { return control->ShareAllowance(seconds); };
}

absl::Status JobProcesses::EndAll(const absl::Status& error) {
  return AbortAll(set_.has_value() ? set_->control.get() : nullptr, error);
}

int JobProcesses::Tell(const absl::Status& error) {
  if (set_.has_value()) {
    set_->control->TellOnce([&] { Report(error); });
  } else {
    TellUnmet(error, leads(), /*later=*/of_machine_ && launched_.local_rank == 0);
  }
  return ExitCodeOf(error);
}

void JobProcesses::EndHanging(const std::string& why) {
  absl::Status error = absl::DeadlineExceededError(why);
  if (set_.has_value()) {
    const Deadline alone(kEndingAlone, [why] {
      Report(absl::DeadlineExceededError(why));
      _exit(kExitFailed);
    });
    if (const std::string waits = set_->control->Waits(); !waits.empty()) {
      error = absl::DeadlineExceededError(absl::StrCat(why, "; it waits for ", waits));
      absl::SleepFor(kCulpritSpeaks);
    }
    Tell(EndAll(error));
    const absl::Time end = absl::Now() + kFarewell;
    while (absl::Now() < end) {
      (void)set_->control->status();  // lets MPI move what was said
      absl::SleepFor(absl::Milliseconds(10));
    }
    _exit(kExitFailed);
  }
  Report(error);
  _exit(kExitFailed);
}

void JobProcesses::Leave(int exit_code) {
  if (!set_.has_value()) return;
  std::fflush(stdout);
  const absl::Duration patience = kMeetingTimeouts * timeout_;
  const Deadline left(patience, [this, patience, exit_code] {
    if (leads()) {
      Report(absl::DeadlineExceededError(absl::StrCat(
          "the other processes have not left within ", absl::FormatDuration(patience),
          " (three times --rank-timeout); this one has done its part and does not wait for them")));
    } else {
      absl::SleepFor(kFirstSpeaks);
    }
    _exit(exit_code);
  });
  set_.reset();
}

absl::Status JobProcesses::TakeDevices(int64_t& devices) const {
  if (!of_torchrun() || devices == launched_.ranks) return absl::OkStatus();
  if (devices > 1) {
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
  int sharers = 0, number = 0, processor_sharers = 0, processor_number = 0;
  // Machine and processors are compared as texts, a zero between them.
  std::string own = machine;
  own.push_back('\0');
  own += processors;
  MT_RETURN_IF_ERROR(ExchangeBytes(&control, own, [&](int rank, absl::string_view bytes) {
    const bool here = bytes.substr(0, bytes.find('\0')) == machine;
    sharers += here ? 1 : 0;
    number += here && rank < control.rank() ? 1 : 0;
    processor_sharers += bytes == own ? 1 : 0;
    processor_number += bytes == own && rank < control.rank() ? 1 : 0;
  }));
  options.sharers = sharers;
  options.process = number;
  options.threads = std::max(1, AvailableProcessors() / processor_sharers);
  options.first_processor = processor_number * options.threads;
  return absl::OkStatus();
}

}  // namespace megatrain

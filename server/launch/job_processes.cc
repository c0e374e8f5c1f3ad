#include "server/launch/job_processes.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "engine/base/processors.h"
#include "engine/base/status.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/exchange.h"
#include "engine/comm/mpi/mpi_communicator.h"
#include "server/base/exit_code.h"
#include "server/base/version.h"
#include "server/launch/torchrun_machine.h"

namespace megatrain {
namespace {

// The processes meet, and leave each other, within so many timeouts. Those of one machine begin
// together. Machines begin tens of seconds apart if each runs a prolog or pulls an image, or if
// hundreds read the program from one disk. MPI itself takes seconds for thousands of processes.
constexpr int kMeetingTimeouts = 3;
// The others wait so long for the first process to say what may be wrong on all machines. Once it
// exits, the launcher ends them.
constexpr absl::Duration kFirstSpeaks = absl::Seconds(2);
// A process that hangs gives MPI so long to tell the others of its end.
constexpr absl::Duration kFarewell = absl::Seconds(1);
// A process that hangs ends after this at the latest, for MPI may hang too.
constexpr absl::Duration kEndingAlone = absl::Seconds(25);

// Deadline calls a function, on a thread of its own, unless it is destroyed before its time: for
// calls of libraries that may wait for ever, and can be told nothing meanwhile.
class Deadline {
 public:
  // `late` is called at most once. It may end the process, and must not destroy the deadline. Time
  // for which the machine is suspended does not count.
  Deadline(absl::Duration patience, std::function<void()> late)
      : thread_([this, patience, late = std::move(late)] { Wait(patience, late); }) {}
  // Waits for a call that is under way.
  ~Deadline() {
    {
      MutexLock lock(&mutex_);
      met_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  void Wait(absl::Duration patience, const std::function<void()>& late) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + absl::ToChronoNanoseconds(patience);
    {
      MutexLock lock(&mutex_);
      while (!met_ && Clock::now() < end) {
        changed_.WaitFor(&mutex_, std::chrono::duration<double>(end - Clock::now()).count());
      }
      if (met_) return;
    }
    late();
  }

  Mutex mutex_;
  CondVar changed_;
  bool met_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the rest
};

std::string ProcessorSet() {
  std::vector<int> numbers;
  for (const Processor& processor : AllowedProcessors()) numbers.push_back(processor.number);
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (const int number : numbers) absl::StrAppend(&text, number, ",");
  return text;
}

}  // namespace

std::string MachineId() {
  // Files of /proc have no length: they must be read to their end.
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id.empty() ? HostName() : id;
}

JobProcesses JobProcesses::Read() {
  const auto get = [](const char* name) { return std::getenv(name); };
  JobProcesses processes;
  absl::StatusOr<LaunchEnvironment> launched = ReadLaunchEnvironment(get, HostName());
  processes.of_machine_ = !launched.ok();
  processes.read_ = launched.status();
  processes.launched_ = launched.ok() ? *std::move(launched) : ApparentEnvironment(get, HostName());
  return processes;
}

int JobProcesses::Launch(absl::Duration timeout) const {
  const absl::StatusOr<int> code = RunTorchrunMachine(launched_, timeout);
  if (code.ok()) return *code;
  return Report(absl::Status(code.status().code(),
                             absl::StrCat("on ", launched_.node, ": ", code.status().message())));
}

absl::Status JobProcesses::CheckStartedWithMpi() const {
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
  std::signal(SIGPIPE, SIG_IGN);  // MPI writes to processes that are gone
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
  return absl::OkStatus();
}

absl::Status JobProcesses::CheckSameProgram() {
  if (!set_.has_value()) return absl::OkStatus();
  int64_t bytes = 0;
  MT_ASSIGN_OR_RETURN(const std::string hash,
                      HashFile(PosixFileSystem(), "/proc/self/exe", &bytes));
  const std::string own = absl::StrCat(kVersion, " (", hash, ") on ", HostName());
  const auto program = [](absl::string_view text) { return text.substr(0, text.find(')')); };
  std::string first;
  absl::Status status;
  MT_RETURN_IF_ERROR(
      ExchangeBytes(set_->control.get(), own, [&](int rank, absl::string_view bytes) {
        if (rank == 0) first = std::string(bytes);
        if (!status.ok() || program(bytes) == program(first)) return;
        status = FoundByAll(absl::FailedPreconditionError(
            absl::StrCat("rank ", rank, " runs megatraind ", bytes, ", and rank 0 runs ", first,
                         "; install the same one on all machines of the job")));
      }));
  return status;
}

void JobProcesses::EndUnlessAllBegan() const {
  const std::vector<int> missing = here_->Missing(launched_.local_ranks);
  if (missing.empty()) return;
  int lowest = 0;
  while (std::find(missing.begin(), missing.end(), lowest) != missing.end()) ++lowest;
  // The others speak if that one cannot: once it has told, it exits before they do, and the
  // launcher ends them.
  const bool first = lowest == launched_.local_rank;
  if (!first) absl::SleepFor(kFirstSpeaks);
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
            first, /*later=*/!first);
  // Those that began a moment later look too, and must find this one.
  if (first) absl::SleepFor(kFirstSpeaks);
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

int JobProcesses::AbortAndReport(const absl::Status& error) {
  if (!set_.has_value()) {
    TellUnmet(error, leads(), /*later=*/of_machine_ && launched_.local_rank == 0);
    return ExitCodeOf(error);
  }
  const Deadline ended(kMeetingTimeouts * timeout_, [error] {
    Report(error);
    _exit(kExitFailed);
  });
  const absl::Status first = AbortAll(set_->control.get(), error);
  set_->control->TellOnce([&first] { Report(first); });
  return ExitCodeOf(first);
}

void JobProcesses::EndHanging(const std::string& why) {
  absl::Status error = absl::DeadlineExceededError(why);
  if (set_.has_value()) {
    const Deadline alone(kEndingAlone, [why] {
      Report(absl::DeadlineExceededError(why));
      _exit(kExitFailed);
    });
    if (const std::string waits = set_->control->DescribeWaits(); !waits.empty()) {
      error = absl::DeadlineExceededError(absl::StrCat(why, "; it waits for ", waits));
      // A process that hangs by itself says so first: all find out within two periods of the signs
      // of life.
      absl::SleepFor(std::min(timeout_ / 3, absl::Seconds(10)) + kFirstSpeaks);
    }
    AbortAndReport(error);
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
  // Each process gives its machine and its processors as texts, with a zero between them.
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

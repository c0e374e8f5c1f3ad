#include "server/launch/torchrun_machine.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/comm/mpi/pmix_server.h"
#include "server/base/exit_code.h"
#include "server/base/temporary_directory.h"

namespace megatrain {
namespace {

constexpr int kMeetingTimeouts = 3;
// A process that failed is missed by the others of the job after the timeout. They say so and end.
constexpr absl::Duration kFarewell = absl::Seconds(10);
constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// Blocks the signals that a launcher waits for, and restores those that were blocked before.
class LauncherSignals {
 public:
  LauncherSignals() {
    sigemptyset(&awaited_);
    sigaddset(&awaited_, SIGCHLD);
    for (const int signal : kPassedOn) sigaddset(&awaited_, signal);
    pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
  }
  ~LauncherSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  LauncherSignals(const LauncherSignals&) = delete;
  LauncherSignals& operator=(const LauncherSignals&) = delete;

  // Waits a moment for the next signal. Returns 0 if none came.
  int Next() const {
    const timespec moment = {.tv_sec = 0, .tv_nsec = 200'000'000};
    return std::max(0, sigtimedwait(&awaited_, nullptr, &moment));
  }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t awaited_;
  sigset_t before_;
};

// Sets the variables "NAME=VALUE" in an environment.
void Set(const std::vector<std::string>& variables,
         std::map<std::string, std::string>& environment) {
  for (const std::string& variable : variables) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(variable, absl::MaxSplits('=', 1));
    environment[parts.first] = parts.second;
  }
}

std::vector<std::string> EnvironmentOf(const LaunchEnvironment& launched, const std::string& job,
                                       int number, const std::vector<std::string>& of_pmix) {
  std::map<std::string, std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) Set({*variable}, environment);
  const int rank = launched.rank + number;
  Set(of_pmix, environment);
  Set({absl::StrCat("RANK=", rank), absl::StrCat("LOCAL_RANK=", number),
       absl::StrCat("OMPI_COMM_WORLD_RANK=", rank),
       absl::StrCat("OMPI_COMM_WORLD_SIZE=", launched.ranks),
       absl::StrCat("OMPI_COMM_WORLD_LOCAL_RANK=", number),
       absl::StrCat("OMPI_COMM_WORLD_LOCAL_SIZE=", launched.local_ranks),
       // Open MPI 4 asks PMIx only where it finds a launcher that it knows to have one. Flux is the
       // one of which it wants nothing else.
       absl::StrCat("FLUX_JOB_ID=", job)},
      environment);
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(absl::StrCat(name, "=", value));
  return variables;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> OwnArguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// Starts this program anew with these arguments and variables.
absl::StatusOr<pid_t> StartAgain(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& variables,
                                 const sigset_t& signals) {
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(variables);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    return absl::UnavailableError(
        absl::StrCat("a process cannot be started: ", std::strerror(errno)));
  }
  if (child > 0) return child;
  // Only async-signal-safe calls: the parent has threads. In a group of its own the process gets a
  // terminal's Ctrl-C once, from the launcher.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  execve("/proc/self/exe", argv.data(), envp.data());
  _exit(kExitFailed);
}

// Waits for the processes to end, and returns the exit code.
int Await(std::vector<pid_t> processes, const LauncherSignals& signals, absl::Duration timeout) {
  int code = kExitDone;
  absl::Time end = absl::InfiniteFuture();
  while (!processes.empty()) {
    const int signal = signals.Next();
    for (const pid_t process : processes) {
      if (absl::Now() >= end) kill(process, SIGKILL);
      if (signal != 0 && signal != SIGCHLD) kill(process, signal);
    }
    std::erase_if(processes, [&](pid_t process) {
      int status = 0;
      if (waitpid(process, &status, WNOHANG) != process) return false;
      const int own = WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailed;
      const bool failed = own != kExitDone && own != kExitInterrupted;
      if (end == absl::InfiniteFuture()) {
        code = failed ? own : std::max(code, own);
        if (failed) end = absl::Now() + timeout + kFarewell;
      }
      return true;
    });
  }
  return code;
}

// Exchanges the first data. A signal to end ends the wait for the other machines.
absl::StatusOr<std::vector<std::string>> Meet(Meeting& meeting, const std::string& own,
                                              const LauncherSignals& signals,
                                              absl::Duration timeout) {
  std::atomic<bool> met = false;
  std::thread watch([&] {
    while (!met) {
      const int signal = signals.Next();
      if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) return meeting.Leave();
    }
  });
  absl::StatusOr<std::vector<std::string>> given =
      meeting.Exchange(own, kMeetingTimeouts * timeout);
  met = true;
  watch.join();
  return given;
}

// Machines of one name, as containers may have, get others.
std::vector<PmixJob::Machine> MachinesOf(const std::vector<std::string>& names,
                                         const std::vector<int>& ranks) {
  std::vector<PmixJob::Machine> machines;
  std::map<std::string, int> count;
  for (size_t i = 0; i < names.size(); ++i) {
    const int number = count[names[i]]++;
    machines.push_back({.name = number == 0 ? names[i] : absl::StrCat(names[i], "-", number + 1),
                        .ranks = ranks[i]});
  }
  return machines;
}

}  // namespace

absl::StatusOr<MeetingPlace> TorchrunMeetingPlace(const LaunchEnvironment& launched,
                                                  GetEnvironment get_environment) {
  const auto text = [&](const char* name) {
    const char* const value = get_environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  const bool agent_listens = text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (agent_listens && launched.master_port == 65535) {
    return absl::InvalidArgumentError(
        "environment: MASTER_PORT=65535 is torchrun's own, and there is no port above it for "
        "megatraind; start torchrun with another --master-port");
  }
  return MeetingPlace{.job = text("TORCHELASTIC_RUN_ID"),
                      .address = launched.master_address,
                      .port = launched.master_port + (agent_listens ? 1 : 0),
                      .ranks = launched.ranks,
                      .first_rank = launched.rank,
                      .local_ranks = launched.local_ranks};
}

absl::StatusOr<int> RunTorchrunMachine(const LaunchEnvironment& launched, absl::Duration timeout) {
  const LauncherSignals signals;  // before there are threads, which inherit it
  std::signal(SIGPIPE, SIG_IGN);  // PMIx writes to processes that are gone
  const auto get = [](const char* name) { return std::getenv(name); };
  MT_ASSIGN_OR_RETURN(const MeetingPlace place, TorchrunMeetingPlace(launched, get));
  const std::vector<std::string> arguments = OwnArguments();

  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Meeting> meeting, Meeting::Open(place));
  // Each machine gives its name and a random number; the first one's makes the job's name unique.
  const std::string own = absl::StrCat(launched.node, ",", std::random_device()());
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> given, Meet(*meeting, own, signals, timeout));
  std::vector<std::string> names;
  for (const std::string& each : given) names.push_back(each.substr(0, each.find(',')));

  MT_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryDirectory> directory,
                      TemporaryDirectory::Create());
  const PmixJob job = {.name = absl::StrCat("megatrain-", given[0].substr(names[0].size() + 1)),
                       .directory = directory->path(),
                       .machines = MachinesOf(names, meeting->machine_ranks()),
                       .machine = meeting->machine()};
  MT_ASSIGN_OR_RETURN(
      const std::unique_ptr<PmixServer> pmix,
      PmixServer::Start(job, [&](const std::string& data) -> absl::StatusOr<std::string> {
        MT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            meeting->Exchange(data, absl::InfiniteDuration()));
        return absl::StrJoin(all, "");
      }));
  std::vector<pid_t> processes;
  const absl::Status started = [&]() -> absl::Status {
    for (int number = 0; number < launched.local_ranks; ++number) {
      MT_ASSIGN_OR_RETURN(const std::vector<std::string> of_pmix,
                          pmix->EnvironmentOf(launched.rank + number));
      MT_ASSIGN_OR_RETURN(const pid_t process,
                          StartAgain(arguments, EnvironmentOf(launched, job.name, number, of_pmix),
                                     signals.before()));
      processes.push_back(process);
    }
    return absl::OkStatus();
  }();
  if (!started.ok()) {
    for (const pid_t process : processes) kill(process, SIGKILL);
  }
  const int code = Await(processes, signals, timeout);
  meeting->Leave();
  MT_RETURN_IF_ERROR(started);
  return code;
}

}  // namespace megatrain

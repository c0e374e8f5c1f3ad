#include "server/launch/torchrun_machine.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
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

// Blocks the signals that a launcher waits for, until the process ends.
class LauncherSignals {
 public:
  LauncherSignals() {
    std::signal(SIGCHLD, SIG_DFL);  // if it was ignored, no exit code would be kept
    sigemptyset(&awaited_);
    sigaddset(&awaited_, SIGCHLD);
    for (const int signal : kPassedOn) {
      // A signal that is ignored, as nohup has it, would come once it is blocked.
      struct sigaction now = {};
      if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) continue;
      sigaddset(&awaited_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
  }
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

// The path of this program, by whose name people find its processes.
std::string OwnProgram() {
  constexpr char kLink[] = "/proc/self/exe";
  std::error_code error;
  const std::string path = std::filesystem::read_symlink(kLink, error);
  return !path.empty() && access(path.c_str(), X_OK) == 0 ? path : kLink;
}

// Starts `program` with these arguments and variables.
absl::StatusOr<pid_t> StartAgain(const std::string& program,
                                 const std::vector<std::string>& arguments,
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
  // signal to the launcher's group, as of a terminal's Ctrl-C, once, from the launcher.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  execve(program.c_str(), argv.data(), envp.data());
  _exit(kExitFailed);
}

// Waits for the processes to end, and returns the exit code.
int Await(std::vector<pid_t> processes, const LauncherSignals& signals, absl::Duration timeout) {
  using Clock = std::chrono::steady_clock;
  int code = kExitDone;
  std::set<int> passed_on;
  Clock::time_point end = Clock::time_point::max();
  while (!processes.empty()) {
    const int signal = signals.Next();
    if (signal != 0 && signal != SIGCHLD) passed_on.insert(signal);
    for (const pid_t process : processes) {
      if (Clock::now() >= end) kill(process, SIGKILL);
      if (signal != 0 && signal != SIGCHLD) kill(process, signal);
    }
    std::erase_if(processes, [&](pid_t process) {
      int status = 0;
      if (waitpid(process, &status, WNOHANG) == 0) return false;
      int own = WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailed;
      // Before it handles signals one ends it.
      if (WIFSIGNALED(status) && passed_on.contains(WTERMSIG(status))) own = kExitInterrupted;
      const bool failed = own != kExitDone && own != kExitInterrupted;
      if (end == Clock::time_point::max()) {
        code = failed ? own : std::max(code, own);
        if (failed) end = Clock::now() + absl::ToChronoSeconds(timeout + kFarewell);
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
  std::atomic<bool> met = false, told = false;
  std::thread watch([&] {
    while (!met && !told) {
      const int signal = signals.Next();
      told = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
    }
    if (told) meeting.Leave();
  });
  absl::StatusOr<std::vector<std::string>> given =
      meeting.Exchange(own, kMeetingTimeouts * timeout);
  met = true;
  watch.join();
  if (told && given.ok()) return absl::CancelledError("told to end as the job's machines had met");
  return given;
}

// Names for PMIx. A number and a dash come first: so machines of one name, as containers may have,
// are told apart, and PMIx 4 does not look for numbers within the name, for which it has 50 bytes.
std::vector<PmixJob::Machine> MachinesOf(const std::vector<std::string>& names,
                                         const std::vector<int>& ranks) {
  std::vector<PmixJob::Machine> machines;
  for (size_t i = 0; i < names.size(); ++i) {
    std::string name = names[i].substr(0, 40);
    for (char& c : name) c = absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '-';
    machines.push_back({.name = absl::StrCat(i, "-", name), .ranks = ranks[i]});
  }
  return machines;
}

// Runs the processes of the machine once the job's machines have met.
absl::StatusOr<int> RunProcesses(const LaunchEnvironment& launched, absl::Duration timeout,
                                 const std::vector<std::string>& given,
                                 const LauncherSignals& signals, Meeting& meeting) {
  std::vector<std::string> names;
  for (const std::string& each : given) names.push_back(each.substr(0, each.find(',')));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryDirectory> directory,
                      TemporaryDirectory::Create());
  const std::string& first = given.front();
  const PmixJob job = {.name = absl::StrCat("megatrain-", first.substr(first.find(',') + 1)),
                       .directory = directory->path(),
                       .machines = MachinesOf(names, meeting.machine_ranks()),
                       .machine = meeting.machine()};
  MT_ASSIGN_OR_RETURN(
      const std::unique_ptr<PmixServer> pmix,
      PmixServer::Start(job, [&](const std::string& data) -> absl::StatusOr<std::string> {
        MT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            meeting.Exchange(data, absl::InfiniteDuration()));
        return absl::StrJoin(all, "");
      }));
  const std::vector<std::string> arguments = OwnArguments();
  const std::string program = OwnProgram();
  std::vector<pid_t> processes;
  const absl::Status started = [&]() -> absl::Status {
    for (int number = 0; number < launched.local_ranks; ++number) {
      MT_ASSIGN_OR_RETURN(const std::vector<std::string> of_pmix,
                          pmix->EnvironmentOf(launched.rank + number));
      MT_ASSIGN_OR_RETURN(
          const pid_t process,
          StartAgain(program, arguments, EnvironmentOf(launched, job.name, number, of_pmix),
                     signals.before()));
      processes.push_back(process);
    }
    return absl::OkStatus();
  }();
  if (!started.ok()) {
    for (const pid_t process : processes) kill(process, SIGKILL);
  }
  const int code = Await(processes, signals, timeout);
  if (started.ok() && (code == kExitDone || code == kExitInterrupted)) {
    meeting.Leave();
  } else {
    meeting.LeaveFailed();
  }
  MT_RETURN_IF_ERROR(started);
  return code;
}

}  // namespace

absl::StatusOr<MeetingPlace> TorchrunMeetingPlace(const LaunchEnvironment& launched,
                                                  EnvironmentLookup get_environment) {
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
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Meeting> meeting, Meeting::Open(place));
  // Each machine gives its name and a random number; the first one's makes the job's name unique.
  const std::string own = absl::StrCat(launched.node, ",", std::random_device()());
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> given, Meet(*meeting, own, signals, timeout));
  absl::StatusOr<int> code = RunProcesses(launched, timeout, given, signals, *meeting);
  if (!code.ok()) meeting->LeaveFailed();
  return code;
}

}  // namespace megatrain

// A rank of a job that mpirun starts for job_processes_test:
//
//   hanging_ranks SCENARIO RANK DIRECTORY
//
// Rank RANK never comes to the barrier in which the others wait for it. In "stuck" it hangs, in
// "slow" it gets on until the others have stood still for longer than they may; in "stays" it comes
// and never takes its leave.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/launch/job_processes.h"
#include "server/worker/watchdog.h"

namespace megatrain {
namespace {

constexpr double kMaySeconds = 2;

WatchdogOptions Options(JobProcesses& processes) {
  WatchdogOptions options;
  options.step_seconds_min = options.saving_seconds = kMaySeconds;
  options.poll_seconds = 0.05;
  options.share = processes.Share();
  return options;
}

void Hang() {
  while (true) pause();
}

int Main(const std::string& scenario, int odd_rank, const std::filesystem::path& directory) {
  JobProcesses processes = JobProcesses::Read();
  if (const absl::Status joined = processes.Join(absl::Seconds(3)); !joined.ok()) {
    return processes.AbortAndReport(joined);
  }
  std::raise(SIGPIPE);  // as when MPI writes to a rank that is gone
  Communicator& control = *processes.communicators()->control;
  const bool odd = control.rank() == odd_rank;
  if (scenario == "stays") {
    if (odd) Hang();
    processes.Leave(0);
    return 0;
  }
  absl::Status status;
  {
    Watchdog watchdog(Options(processes),
                      [&](const std::string& why) { processes.EndHanging(why); });
    watchdog.Enter(TrainingPhase::kRunning);
    watchdog.StepDone(7, 0.001);
    if (odd) watchdog.Enter(TrainingPhase::kSaving, "saving step 7");
    if (odd && scenario == "stuck") Hang();
    for (int i = 0; odd && i < 120; ++i) {
      watchdog.Alive();
      absl::SleepFor(absl::Milliseconds(50));
    }
    status = control.Barrier();
  }
  std::ofstream(directory / absl::StrCat("came", control.rank()));
  const int code = status.ok() ? 0 : processes.AbortAndReport(status);
  processes.Leave(code);
  return code;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  return argc == 4 ? megatrain::Main(argv[1], std::atoi(argv[2]), argv[3]) : 2;
}

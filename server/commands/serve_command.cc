// megatraind serve: the daemon.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/device/cuda/open_cuda_device.h"
#include "server/commands/command.h"
#include "server/config/daemon_config.h"
#include "server/daemon/daemon.h"
#include "server/daemon_log.h"
#include "server/exit_code.h"
#include "server/stop_signals.h"

namespace megatrain {
namespace {

struct ServeArguments {
  std::string config;
  std::vector<std::string> overrides;
};

// A stream takes a file of its job's log beside its connection's share: the default of 1,024 is
// soon used up. What cannot be had is gone without.
void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status Serve(const ServeArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const DaemonConfig config,
                      ReadDaemonConfig(arguments.config, arguments.overrides));
  RaiseFileLimit();
  // Store and records are the daemon's alone, also where the way to jobs' directories is open. What
  // jobs write is given its mode by itself.
  ::umask(0077);
  InstallStopSignals();
  DaemonHooks hooks;
  const DaemonLog log;
  RunLog run_log(&log);
  hooks.log = [&log](const std::string& line) { log.Write(line); };
  hooks.run_observer = &run_log;
  // The store is on stable storage after every change; a hanging thread would hold up any other
  // way out.
  hooks.open_gpu = OpenCudaDevice;
  hooks.end_process = [] { _exit(kExitFailed); };
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Daemon> daemon, Daemon::Open(config, hooks));
  const absl::Status pinned = daemon->PinPool(StopRequested);
  if (!pinned.ok() && !StopRequested()) return pinned;
  WaitForStop();
  daemon->Stop();
  return absl::OkStatus();
}

}  // namespace

void AddServeCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* const command = app->add_subcommand("serve", "Serve jobs to clients");
  command->add_option("--config", arguments->config, "the configuration; none: the defaults")
      ->type_name("F.yaml");
  command
      ->add_option("--set", arguments->overrides,
                   "replace a value of the configuration; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->callback([arguments, exit_code] { *exit_code = Report(Serve(*arguments)); });
}

}  // namespace megatrain

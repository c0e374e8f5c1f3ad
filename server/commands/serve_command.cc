// megatraind serve: the daemon.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/device/cuda/open_cuda_device.h"
#include "server/base/exit_code.h"
#include "server/commands/command.h"
#include "server/commands/process_signals.h"
#include "server/config/daemon_config.h"
#include "server/daemon/daemon.h"
#include "server/daemon/daemon_log.h"

namespace megatrain {
namespace {

struct ServeArguments {
  std::string config;
  std::vector<std::string> overrides;
  bool accept_device_change = false;
};

// The configuration was understood. What is not there may come: a file system that is not mounted
// yet, an account service that is late, a driver that is not loaded, another daemon that is about
// to end. Only a configuration that is wrong is kExitUsage, with which no service is started again.
absl::Status MayPass(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnavailable:
      return absl::UnavailableError(
          absl::StrCat(status.message(),
                       "; this may pass: as a service the daemon is started again until then"));
    default:
      return status;
  }
}

void Reload(const ServeArguments& arguments, DaemonLog* log, Daemon* daemon) {
  const absl::StatusOr<DaemonConfig> config =
      ReadDaemonConfig(arguments.config, arguments.overrides);
  const absl::Status status = config.ok() ? daemon->Reload(*config) : config.status();
  if (status.ok()) {
    log->SetLevel(LogPriorityOf(config->log_level));
  } else {
    log->Write(LogPriority::kError,
               absl::StrCat("the configuration is not read again, what was before stays: ",
                            status.message()),
               nullptr);
  }
}

absl::Status Serve(const ServeArguments& arguments) {
  MT_ASSIGN_OR_RETURN(DaemonConfig config, ReadDaemonConfig(arguments.config, arguments.overrides));
  config.accept_device_change = arguments.accept_device_change;
  // Store and records are the daemon's alone, also where the way to jobs' directories is open. What
  // jobs write is given its mode by itself.
  ::umask(0077);
  InstallDaemonSignals();
  DaemonHooks hooks;
  DaemonLog log;
  log.SetLevel(LogPriorityOf(config.log_level));
  RunLog run_log(&log);
  hooks.log = [&log](const std::string& line) { log.Write(line); };
  hooks.warn = [&log](const std::string& line) { log.Write(LogPriority::kWarning, line, nullptr); };
  hooks.run_observer = &run_log;
  hooks.open_gpu = OpenCudaDevice;
  // The store is on stable storage after every change; a hanging thread would hold up any other
  // way out.
  hooks.end_process = [] { _exit(kExitFailed); };
  std::atomic<bool> restart{false};
  hooks.restart = [&restart] {
    restart = true;
    RequestStop();
  };
  hooks.load_nccl = LoadNccl;
  hooks.cancelled = StopRequested;
  absl::StatusOr<std::unique_ptr<Daemon>> opened = Daemon::Open(config, hooks);
  if (absl::IsCancelled(opened.status())) return absl::OkStatus();
  if (!opened.ok()) return MayPass(opened.status());
  const std::unique_ptr<Daemon> daemon = *std::move(opened);
  const absl::Status pinned = daemon->BeginJobs(StopRequested);
  if (!pinned.ok() && !StopRequested()) return MayPass(pinned);
  while (WaitForSignal() == DaemonSignal::kReload) Reload(arguments, &log, daemon.get());
  daemon->Stop();
  // A device that is lost may hang whoever lets go of it.
  if (restart) _exit(kExitFailed);
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
  command->add_flag("--accept-device-change", arguments->accept_device_change,
                    "go on on another kind of device than before (cpu, cuda), once");
  command->callback([arguments, exit_code] { *exit_code = Report(Serve(*arguments)); });
}

}  // namespace megatrain

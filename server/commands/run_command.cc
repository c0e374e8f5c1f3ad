// megatraind run JOB.yaml: trains in the foreground.
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/cuda/open_cuda_device.h"
#include "engine/engine.h"
#include "engine/job/job_parser.h"
#include "engine/trace/metrics_writer.h"
#include "engine/trace/progress.h"
#include "server/base/exit_code.h"
#include "server/commands/command.h"
#include "server/commands/process_signals.h"
#include "server/launch/job_processes.h"
#include "server/worker/watchdog.h"

namespace megatrain {
namespace {

struct RunArguments {
  std::string job;
  std::vector<std::string> overrides;
  std::string metrics_path;
  std::string resume = "auto";
  bool discard_newer = false;
  std::vector<std::string> allow_change;
  bool verify_data = false;
  int rank_timeout = 20;  // seconds
};

TrainingOptions OptionsOf(const RunArguments& arguments) {
  const std::string& resume = arguments.resume;
  TrainingOptions options;
  options.discard_newer = arguments.discard_newer;
  options.allow_change = arguments.allow_change;
  options.verify_data = arguments.verify_data;
  if (resume == "auto") {
    options.resume = ResumeMode::kAuto;
  } else if (resume == "never") {
    options.resume = ResumeMode::kNever;
  } else {
    options.resume = ResumeMode::kPath;
    options.resume_path = std::filesystem::absolute(resume).lexically_normal().string();
  }
  return options;
}

// Returns true for a terminal or a pipe: whoever reads it may stop for a while.
bool MayBeHeld(std::FILE* file) {
  struct stat status = {};
  return fstat(fileno(file), &status) == 0 && !S_ISREG(status.st_mode);
}

// `host`: is made here. `*started`: the first step was reached.
absl::StatusOr<TrainingOutcome> Train(const RunArguments& arguments, JobProcesses& processes,
                                      std::unique_ptr<EngineHost>& host, bool* started) {
  WatchdogOptions watch;
  watch.share = processes.Share();
  Watchdog watchdog(watch, [&processes](const std::string& why) { processes.EndHanging(why); });
  watchdog.Enter(TrainingPhase::kPreparing);
  MT_RETURN_IF_ERROR(processes.CheckSameProgram());
  MT_ASSIGN_OR_RETURN(JobSpec spec, ParseJobFile(arguments.job, arguments.overrides));
  MT_RETURN_IF_ERROR(processes.TakeDevices(spec.engine.devices));
  std::unique_ptr<MetricsWriter> metrics;
  if (!arguments.metrics_path.empty() && processes.leads()) {
    MT_ASSIGN_OR_RETURN(metrics, MetricsWriter::Open(arguments.metrics_path));
  }
  static TrainingControl control;  // signal handlers hold it to the process's end
  InstallTrainingSignals(&control, /*says=*/processes.leads());

  Progress progress(stdout, ProgressOptionsFor(stdout));
  const auto say = [&watchdog, may_be_held = MayBeHeld(stdout)](absl::FunctionRef<void()> words) {
    std::optional<Watchdog::Rest> rest;
    if (may_be_held) rest.emplace(watchdog);
    words();
  };
  // Metrics that cannot be written do not end training; that they are missing is said once.
  absl::Status metrics_status;
  const auto note_metrics = [&](absl::Status status) {
    if (status.ok() || !metrics_status.ok()) return;
    metrics_status = std::move(status);
    say([&] {
      progress.Message(absl::StrCat("step metrics are incomplete: ", metrics_status.message()));
    });
  };
  const Overloaded write = {[&](const StepsBegin& begin) {
                              *started = true;
                              if (metrics != nullptr)
                                note_metrics(metrics->TruncateTo(begin.first_step - 1));
                            },
                            [&](const StepRecord& record) {
                              if (metrics != nullptr && metrics_status.ok())
                                note_metrics(metrics->Write(record));
                            },
                            [](const auto&) {}};
  const Overloaded show = {
      [&](const RunMessage& message) { progress.Message(message.line); },
      [&](const StepsBegin& begin) { progress.Started(begin.first_step, begin.total_steps); },
      [&](const StepRecord& record) { progress.Step(record); }, [](const auto&) {}};
  EngineHostOptions options;
  options.device = spec.engine.device;
  options.device_key = "engine.device";
  options.open_gpu = OpenCudaDevice;
  options.load_nccl = LoadNccl;
  if (!processes.several()) options.devices = static_cast<int>(spec.engine.devices);
  MT_RETURN_IF_ERROR(processes.ShareMachine(options));
  MT_ASSIGN_OR_RETURN(host, EngineHost::Create(options));
  if (!host->why_cpu().empty() && processes.leads()) {
    progress.Message(absl::StrCat("on the cpu: ", host->why_cpu()));
  }
  // The plan chooses by them, about a second against hours. Without them it goes by rule.
  if (host->devices().first != kCpuDeviceId) (void)host->MeasureRates();
  TrainingOptions training = OptionsOf(arguments);
  training.processes = processes.communicators();
  training.alive = [&watchdog] { watchdog.Alive(); };
  return RunTraining(*host, spec, training, &control, [&](const RunEvent& event) {
    watchdog.Follow(event);
    std::visit(write, event);
    if (processes.leads()) say([&] { std::visit(show, event); });
  });
}

// Returns the exit code.
int JoinAndTrain(const RunArguments& arguments, JobProcesses& processes,
                 std::unique_ptr<EngineHost>& host) {
  bool started = false;
  absl::StatusOr<TrainingOutcome> outcome = TrainingOutcome::kInterrupted;
  if (const absl::Status joined = processes.Join(absl::Seconds(arguments.rank_timeout));
      !joined.ok()) {
    outcome = joined;
  } else {
    outcome = Train(arguments, processes, host, &started);
  }
  if (outcome.ok()) {
    const bool done =
        *outcome == TrainingOutcome::kFinished || *outcome == TrainingOutcome::kStoppedEarly;
    return done ? kExitDone : kExitInterrupted;
  }
  // Errors before RunTraining are this process's own.
  const int code = processes.AbortAndReport(outcome.status());
  // The job was sound if it reached its first step: then it has failed.
  return started ? kExitFailed : code;
}

int Run(const RunArguments& arguments) {
  JobProcesses processes = JobProcesses::Read();
  if (processes.stands_by()) return kExitDone;
  if (processes.launches()) return processes.Launch(absl::Seconds(arguments.rank_timeout));
  std::unique_ptr<EngineHost> host;  // gives much memory back, which the others do not wait for
  const int code = JoinAndTrain(arguments, processes, host);
  processes.Leave(code);
  return code;
}

}  // namespace

void AddRunCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* const command = app->add_subcommand("run", "Train a job in the foreground");
  command->add_option("job", arguments->job, "the job file")->required()->type_name("JOB.yaml");
  command->add_option("--set", arguments->overrides, "replace a value of the job file; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--metrics-out", arguments->metrics_path, "write a JSON object a step here")
      ->type_name("F.jsonl");
  command
      ->add_option("--resume", arguments->resume,
                   "auto: from the newest good checkpoint; never: refuse one; or a checkpoint")
      ->type_name("auto|never|PATH")
      ->capture_default_str();
  command->add_flag("--verify-data", arguments->verify_data,
                    "read data and prepared data again that look unchanged, and check them");
  command->add_flag("--discard-newer", arguments->discard_newer,
                    "remove checkpoints newer than the one resumed from, once a new one is saved");
  command
      ->add_option("--allow-change", arguments->allow_change,
                   "sections of the job file that the resumed run may change")
      ->type_name("optimizer,schedule")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kChangeableSections),
                                                     std::end(kChangeableSections))));
  command
      ->add_option(
          "--rank-timeout", arguments->rank_timeout,
          "of a job of several processes: one of which nothing is heard for so long counts "
          "as gone, and the job ends")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command->callback([arguments, exit_code] { *exit_code = Run(*arguments); });
}

}  // namespace megatrain

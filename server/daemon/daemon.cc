#include "server/daemon/daemon.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "server/api/serve_api.h"
#include "server/base/error_reason.h"
#include "server/daemon/background_threads.h"
#include "server/daemon/settle_device.h"
#include "server/store/job_store.h"

namespace megatrain {
namespace {

// For calls under way when everything is saved; they take milliseconds.
constexpr std::chrono::seconds kLastCalls{5};

// Between two looks for a device that is missing.
constexpr absl::Duration kDeviceLookInterval = absl::Seconds(1);

}  // namespace

Daemon::Daemon(const DaemonConfig& config, const DaemonHooks& hooks)
    : config_(config), hooks_(hooks), limits_(config.limits) {}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Open(const DaemonConfig& config,
                                                     const DaemonHooks& hooks) {
  std::unique_ptr<Daemon> daemon(new Daemon(config, hooks));
  // The store first: its lock keeps a second daemon from touching anything.
  MT_RETURN_IF_ERROR(daemon->OpenStore());
  MT_ASSIGN_OR_RETURN(daemon->access_, Access::Prepare(config, hooks.log, hooks.warn));
  MT_RETURN_IF_ERROR(daemon->OpenJobFiles());
  absl::Status device = daemon->OpenDevice();
  if (absl::IsUnavailable(device)) device = daemon->AwaitDevice(device);
  if (!device.ok()) return device;
  for (int i = 0; i < daemon->host_->devices().count; ++i) {
    hooks.log(absl::StrCat("device: ", daemon->host_->DescribeDevice(i)));
  }
  daemon->manager_ = std::make_unique<JobManager>(daemon->ledger_.get(), daemon->ManagerOptions());
  daemon->remover_ =
      std::make_unique<JobRemover>(daemon->ledger_.get(), daemon->records_.get(),
                                   JobRemover::Options{.keep_ended_jobs = config.keep_ended_jobs,
                                                       .disk = daemon->disk_.get(),
                                                       .log = hooks.log});
  daemon->remover_->Start();
  daemon->node_reporter_ = std::make_unique<NodeReporter>(
      daemon->host_.get(), &std::as_const(*daemon->ledger_).table(), config.state_directory);
  MT_ASSIGN_OR_RETURN(daemon->monitoring_,
                      Monitoring::Start(config, daemon->host_.get(), daemon->ledger_.get(),
                                        daemon->node_reporter_.get(), daemon->FilesOfJobs(),
                                        daemon->access_->tls(), hooks.log));
  if (daemon->device_changed_) daemon->monitoring_->NoteDeviceChanged();
  GrpcServerOptions server;
  server.listen = config.listen;
  server.tcp_credentials = [access = daemon->access_.get()] {
    return access->MakeTcpCredentials();
  };
  server.request_observer = daemon->monitoring_->request_observer();
  server.refusal_observer = daemon->monitoring_->refusal_observer();
  absl::StatusOr<std::unique_ptr<GrpcServer>> started = absl::UnknownError("");
  StartInBackground([&] {
    started = ServeApi(server, &daemon->access_->authenticator(), daemon->manager_.get(),
                       daemon->records_.get(),
                       [reporter = daemon->node_reporter_.get()] { return reporter->Read(); });
  });
  MT_ASSIGN_OR_RETURN(daemon->server_, std::move(started));
  MT_RETURN_IF_ERROR(daemon->access_->ShareSockets());
  hooks.log(absl::StrCat("listening on ", absl::StrJoin(daemon->server_->listening(), ", "),
                         "; state in ", config.state_directory));
  return daemon;
}

Daemon::~Daemon() { Stop(); }

absl::Status Daemon::OpenStore() {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<JobStore> store, JobStore::Open(config_.state_directory));
  records_ = std::make_unique<JobRecordsDirectory>(JoinPath(config_.state_directory, "jobs"));
  JobLedger::Options options;
  options.state_directory = config_.state_directory;
  options.reached_step = [records = records_.get()](const std::string& id) {
    return records->LastStep(id);
  };
  MT_ASSIGN_OR_RETURN(ledger_, JobLedger::Open(std::move(store), std::move(options)));
  disk_ = std::make_unique<JobDisk>(config_.state_directory, &limits_);
  MeasureDisk();
  return absl::OkStatus();
}

void Daemon::MeasureDisk() {
  for (const JobPtr& job : ledger_->table().All()) disk_->Measure(*job);
  // A deleted job counts until its files are gone, which closed directories prevent.
  for (const JobPtr& job : ledger_->Deleted()) disk_->Measure(*job);
}

OpenFiles Daemon::FilesOfJobs() const {
  return [this](int64_t uid, const std::string& id) { return job_files_->OpenFor(uid, id); };
}

absl::Status Daemon::OpenJobFiles() {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> roots, JobRoots(config_, access_->shared()));
  MT_ASSIGN_OR_RETURN(job_files_, JobFiles::Open(config_.state_directory, roots));
  return absl::OkStatus();
}

absl::Status Daemon::OpenDevice() {
  EngineHostOptions host;
  host.device = config_.device;
  host.devices = static_cast<int>(config_.devices);
  host.threads = static_cast<int>(config_.threads);
  host.open_gpu = hooks_.open_gpu;
  host.load_nccl = hooks_.load_nccl;
  MT_ASSIGN_OR_RETURN(host_, EngineHost::Create(host));
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> before,
                      SettleDevice({.id = host_->devices().first,
                                    .why_cpu = host_->why_cpu(),
                                    .is_named = config_.device != "auto",
                                    .accepted = config_.accept_device_change},
                                   ledger_.get()));
  device_changed_ = before.has_value();
  if (device_changed_) {
    hooks_.warn(absl::StrCat("the device is ", host_->devices().first, " now and was ", *before,
                             ": jobs that have begun go on with other bits"));
  }
  return absl::OkStatus();
}

// The page is served meanwhile, so that somebody is told.
absl::Status Daemon::AwaitDevice(const absl::Status& refused) {
  hooks_.warn(std::string(refused.message()));
  const std::unique_ptr<MetricsServer> page =
      ServeDeviceMissing(config_, &std::as_const(*ledger_).table(), hooks_.log);
  absl::Status status = refused;
  const absl::Time until = absl::Now() + hooks_.device_patience;
  while (absl::IsUnavailable(status) && absl::Now() < until) {
    if (hooks_.cancelled && hooks_.cancelled()) {
      return absl::CancelledError("stopped while it waited for its device");
    }
    absl::SleepFor(kDeviceLookInterval);
    status = OpenDevice();
  }
  return status;
}

absl::Status Daemon::CheckStarted() const {
  if (started_) return absl::OkStatus();
  if (node_reporter_->state() == v1::Node::STOPPING) return DaemonStopping();
  return WithReason(
      absl::UnavailableError("the daemon is starting: its host memory is being reserved"),
      v1::STARTING);
}

JobManager::Options Daemon::ManagerOptions() {
  JobManager::Options options;
  options.plan = [this](const JobSpec& spec, FileSystem* files) -> absl::StatusOr<PlanReport> {
    MT_RETURN_IF_ERROR(CheckStarted());
    return PlanTraining(spec, host_->budget(), files);
  };
  options.files = FilesOfJobs();
  options.devices = host_->devices();
  options.limits = &limits_;
  options.disk = disk_.get();
  options.checkpoint = [this](const std::string& id) -> absl::Status {
    MT_RETURN_IF_ERROR(CheckStarted());
    return runner_->Ask(id, RunWish::kCheckpoint);
  };
  options.write_export = [this](const std::string& checkpoint, const std::string& directory,
                                std::shared_ptr<FileSystem> files,
                                std::function<void(const absl::Status& status)> done) {
    MT_RETURN_IF_ERROR(CheckStarted());
    exports_.Add(checkpoint, directory, std::move(files), std::move(done));
    return absl::OkStatus();
  };
  return options;
}

void Daemon::MeasureRates() {
  if (const absl::Status status = host_->MeasureRates(); !status.ok()) {
    // Jobs run without; only predictions are missed.
    hooks_.warn(absl::StrCat("the machine's rates are not known: ", status.message()));
    return;
  }
  const HardwareRates rates = host_->rates();
  hooks_.log(absl::StrFormat(
      "%s: matrix products %.3g GFLOP/s in FP32, %.3g in BF16; copies %.3g GB/s to the device, "
      "%.3g back; AdamW %.3g GB/s in FP32, %.3g in BF16",
      host_->devices().first, rates.fp32.matmul_flops_per_second / 1e9,
      rates.bf16.matmul_flops_per_second / 1e9, rates.h2d_bytes_per_second / 1e9,
      rates.d2h_bytes_per_second / 1e9, rates.fp32.update_bytes_per_second / 1e9,
      rates.bf16.update_bytes_per_second / 1e9));
  if (rates.collective_bytes_per_second > 0) {
    hooks_.log(
        absl::StrFormat("between devices: %.3g GB/s", rates.collective_bytes_per_second / 1e9));
  }
  if (rates.h2d_beside_d2h_bytes_per_second > 0) {
    hooks_.log(absl::StrFormat(
        "both directions at once: %.3g GB/s to the device, %.3g back; these and AdamW: %.3g GB/s "
        "of "
        "host memory",
        rates.h2d_beside_d2h_bytes_per_second / 1e9, rates.d2h_beside_h2d_bytes_per_second / 1e9,
        rates.host_memory_bytes_per_second / 1e9));
  }
}

void Daemon::SaveOthersAndRestart() {
  scheduler_->BeginShutdown();
  hooks_.restart();
}

std::optional<JobForecast> Daemon::Forecast(const Job& job) const {
  const absl::StatusOr<std::shared_ptr<FileSystem>> files = job_files_->OpenFor(job.uid, job.id);
  if (!files.ok()) return std::nullopt;
  const absl::StatusOr<PlanReport> plan = PlanTraining(*job.spec, host_->budget(), files->get());
  if (!plan.ok()) return std::nullopt;
  JobForecast forecast;
  forecast.step_seconds = plan->choice.predicted.step_seconds;
  forecast.pool_bytes = plan->pool_bytes;
  forecast.misfit = plan->misfit;
  // Devices cannot help a job that lacks host memory: the queue and the run tell of that.
  const bool lacks_host = !plan->fits && plan->device_bytes <= plan->device_limit_bytes;
  if (plan->places.empty() || lacks_host) return forecast;
  forecast.fits_on.emplace();
  for (const PlanReport::Place& place : plan->places) {
    if (place.fits) forecast.fits_on->push_back(place.number);
  }
  std::sort(forecast.fits_on->begin(), forecast.fits_on->end());
  return forecast;
}

absl::Status Daemon::BeginJobs(const std::function<bool()>& cancelled) {
  MeasureRates();
  int64_t bytes = config_.host_memory;
  if (bytes == 0) {
    MT_ASSIGN_OR_RETURN(bytes, EngineHost::DefaultPoolBytes());
  }
  hooks_.log(absl::StrCat("reserving ", FormatBytes(bytes), " of host memory"));
  MT_RETURN_IF_ERROR(host_->ReservePool(
      bytes,
      [this](int64_t done, int64_t capacity) {
        node_reporter_->SetPinning(done, capacity);
        monitoring_->service_notifier().Starting(absl::StrCat(
            "reserving host memory: ", FormatBytes(done), " of ", FormatBytes(capacity)));
      },
      cancelled));
  hooks_.log(absl::StrCat("host pool: ", host_->DescribePool()));

  EngineJobRunnerOptions runner;
  runner.watchdog = hooks_.watchdog;
  runner.files = [this](int64_t uid, const std::string& id) {
    return job_files_->PrepareForRun(uid, id);
  };
  runner.stalled = [this](const std::string& job, const std::string& why) {
    hooks_.warn(absl::StrCat("job ", job, " hangs: ", why, "; ending the process"));
    if (host_->devices().count > 1) {
      SaveOthersAndRestart();
      // Its thread tells no end.
      RunRequest run;
      run.job_id = job;
      return mailbox_.Tell(
          run, RunEnd{RunEnd::Kind::kLost, absl::InternalError(absl::StrCat("it hung: ", why))});
    }
    monitoring_->service_notifier().Hangs();
    hooks_.end_process();
  };
  runner.device_lost = [this](const std::string& job, const std::string& why) {
    hooks_.warn(
        absl::StrCat("job ", job, ": ", why, "; the device is lost to this process, ending it"));
    if (host_->devices().count > 1) return SaveOthersAndRestart();
    hooks_.end_process();
  };
  runner.observers = monitoring_->run_observers();
  if (hooks_.run_observer != nullptr) runner.observers.push_back(hooks_.run_observer);
  runner.observers.push_back(&mailbox_);
  runner_ = std::make_unique<EngineJobRunner>(host_.get(), std::move(runner));
  Scheduler::Options scheduler;
  scheduler.devices = host_->budget().devices;
  scheduler.pool_bytes = host_->pool_usage().capacity;
  scheduler.limits = &limits_;
  scheduler.disk = disk_.get();
  // With the submitter's rights, as everything that is read for a job.
  scheduler.free_disk_bytes = [this](const Job& job,
                                     const std::string& directory) -> absl::StatusOr<int64_t> {
    MT_ASSIGN_OR_RETURN(const std::shared_ptr<FileSystem> files,
                        job_files_->OpenFor(job.uid, job.id));
    return files->FreeDiskBytes(directory);
  };
  scheduler.forecast = [this](const Job& job) { return Forecast(job); };
  scheduler.log = hooks_.warn;
  scheduler_ = std::make_unique<Scheduler>(ledger_.get(), runner_.get(), &mailbox_, records_.get(),
                                           std::move(scheduler));
  scheduler_->Start();
  started_ = true;
  node_reporter_->SetState(v1::Node::READY);
  server_->SetReady(true);
  monitoring_->service_notifier().Ready();
  hooks_.log("ready");
  return absl::OkStatus();
}

absl::Status Daemon::Reload(const DaemonConfig& config) {
  monitoring_->service_notifier().Reloading();
  const absl::Status status = access_->Reload(config);
  if (status.ok()) {
    const bool changed = limits_.Get().disk_bytes != config.limits.disk_bytes;
    limits_.Set(config.limits);
    if (changed) MeasureDisk();
    mailbox_.Wake();  // the scheduler looks at the queue again
    remover_->SetKeepEndedJobs(config.keep_ended_jobs);
    // config_ stays what it was at start, so that the rest is named each time.
    const std::vector<std::string> others = KeysThatNeedRestart(config_, config);
    if (!others.empty()) {
      hooks_.warn(
          absl::StrCat("the configuration was read again; these keys have changed and need ",
                       "a restart: ", absl::StrJoin(others, ", ")));
    } else {
      hooks_.log("the configuration was read again");
    }
  }
  monitoring_->service_notifier().Ready();
  return status;
}

void Daemon::Stop() {
  if (stopped_) return;
  stopped_ = true;
  if (server_ != nullptr) {
    node_reporter_->SetState(v1::Node::STOPPING);
    monitoring_->service_notifier().Stopping();
    server_->SetReady(false);
  }
  // Callers still see what happens while jobs are saved.
  if (scheduler_ != nullptr) {
    hooks_.log("saving what runs");
    scheduler_->Shutdown();
  }
  // The server still has the streams of exports under way.
  exports_.Stop();
  if (server_ != nullptr) server_->Stop(kLastCalls);
  hooks_.log("stopped");
}

}  // namespace megatrain

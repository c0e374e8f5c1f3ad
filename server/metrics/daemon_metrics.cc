#include "server/metrics/daemon_metrics.h"

#include <algorithm>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "server/metrics/metric_page.h"
#include "server/worker/job_failure.h"

namespace megatrain {
namespace {

// From a tiny model's step to one of a model that is streamed for an hour.
const prometheus::Histogram::BucketBoundaries& StepSecondsBuckets() {
  static const auto& buckets = *new prometheus::Histogram::BucketBoundaries{
      0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500};
  return buckets;
}

double UnixSeconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

// The codes of Abseil and gRPC are the same numbers.
std::string CodeName(int code) {
  const std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
  return name.empty() ? "UNKNOWN" : name;
}

// "GetJob"; "other".
std::string MethodName(std::string_view method) {
  if (method.rfind("/megatrain.v1.", 0) != 0) return "other";
  return std::string(method.substr(method.rfind('/') + 1));
}

void AddJobs(const MeasuredNode& node, MetricPage* page) {
  std::map<JobState, int> counts;
  double longest_wait = 0;
  for (const JobPtr& job : node.jobs) {
    ++counts[job->state];
    if (job->state != JobState::kQueued) continue;
    longest_wait = std::max(longest_wait, absl::ToDoubleSeconds(node.now - job->queued));
  }
  auto jobs = page->Gauge("megatrain_jobs", "Jobs in each state, ended ones included.");
  for (const JobState state : AllJobStates()) {
    jobs.Add({{"state", JobStateName(state)}}, counts[state]);
  }
  // A counter that appears with its first count shows no increase by it: all appear at the start.
  auto endings = node.endings;
  endings.try_emplace({JobState::kSucceeded, JobReason::kNone});
  endings.try_emplace({JobState::kCancelled, JobReason::kUserRequest});
  for (const JobReason reason :
       {JobReason::kRepeatedDeaths, JobReason::kTrainingError, JobReason::kInvalidInput,
        JobReason::kDoesNotFit, JobReason::kNonFinite, JobReason::kCheckpointDamaged}) {
    endings.try_emplace({JobState::kFailed, reason});
  }
  auto ended = page->Counter("megatrain_jobs_ended_total", "Jobs that have ended.");
  for (const auto& [how, count] : endings) {
    ended.Add({{"state", JobStateName(how.first)}, {"reason", JobReasonName(how.second)}},
              static_cast<double>(count));
  }
  page->Counter("megatrain_store_errors_total", "Writes to the store of jobs that have failed.")
      .Add(static_cast<double>(node.store_errors));
  page->Gauge("megatrain_queue_wait_seconds",
              "How long the job that has waited longest is in the queue; 0 if none is.")
      .Add(longest_wait);
}

void AddNode(const MeasuredNode& node, MetricPage* page) {
  auto pool = page->Gauge("megatrain_host_pool_bytes",
                          "The pool of host memory by use; the sum is its capacity.");
  for (int kind = 0; kind < kHostKinds; ++kind) {
    const std::string name =
        absl::StrReplaceAll(HostKindName(static_cast<HostKind>(kind)), {{" ", "_"}});
    pool.Add({{"kind", name}}, static_cast<double>(node.pool.bytes[kind]));
  }
  pool.Add({{"kind", "free"}}, static_cast<double>(node.pool.free_bytes));
  page->Gauge("megatrain_disk_size_bytes", "Size of the state directory's file system.")
      .Add(static_cast<double>(node.node.state_disk().size_bytes()));
  page->Gauge("megatrain_disk_free_bytes", "What is free of the state directory's file system.")
      .Add(static_cast<double>(node.node.state_disk().free_bytes()));
  auto devices = page->Gauge("megatrain_device_busy",
                             "1 while a job has the device: prepares, trains or saves.");
  for (const v1::Device& device : node.node.devices()) {
    devices.Add({{"device", device.id()}}, device.busy() ? 1 : 0);
  }
  auto memory =
      page->Gauge("megatrain_device_memory_bytes", "All memory of a device that has its own.");
  for (const v1::Device& device : node.node.devices()) {
    if (device.memory_bytes() == 0) continue;
    memory.Add({{"device", device.id()}}, static_cast<double>(device.memory_bytes()));
  }
}

// Labels of what is one run's; `device` is the key of its first device.
MetricLabels LabelsOf(const std::string& device, MetricLabels labels = {}) {
  if (!device.empty()) labels.push_back({"device", device});
  return labels;
}

std::optional<double> UnixSeconds(const std::optional<absl::Time>& time) {
  return time.has_value() ? std::optional(UnixSeconds(*time)) : std::nullopt;
}

}  // namespace

DaemonMetrics::DaemonMetrics(std::string version, std::string device,
                             std::vector<std::string> devices, Describe describe)
    : version_(std::move(version)), device_(std::move(device)), describe_(std::move(describe)) {
  if (devices.empty()) devices.push_back("");
  for (const std::string& each : devices) step_seconds_.try_emplace(each, StepSecondsBuckets());
}

void DaemonMetrics::Tell(const RunRequest& run, const JobRunEvent& event) {
  std::visit(Overloaded{[&](const StepsBegin&) {
                          MeasuredJob job = describe_(run);
                          job.id = run.job_id;
                          JobHasDevices(job);
                        },
                        [&](const StepRecord& record) { StepDone(run.job_id, record); },
                        [&](const CheckpointSaved& saved) {
                          MutexLock lock(&mutex_);
                          Run* const measured = Find(run.job_id);
                          if (measured == nullptr) return;
                          measured->checkpoint_time = absl::Now();
                          measured->checkpoint_seconds = saved.seconds;
                        },
                        [&](const TrainingPause&) { JobLeftDevices(run.job_id); },
                        [&](const RunEnd& end) {
                          JobLeftDevices(run.job_id);
                          if (FailureOf(end.status) != JobReason::kNonFinite) return;
                          MutexLock lock(&mutex_);
                          ++nonfinite_steps_;  // a step that has no record
                        },
                        [](const auto&) {}},
             event);
}

void DaemonMetrics::JobHasDevices(const MeasuredJob& job) {
  MutexLock lock(&mutex_);
  const std::string key = job.devices.empty() ? "" : job.devices.front();
  // It may have been on others before.
  std::erase_if(runs_,
                [&](const auto& run) { return run.first != key && run.second.job.id == job.id; });
  Run& run = runs_[key];
  if (run.job.id != job.id) run = Run();
  // A step before a pause is no measure of how long this one takes.
  if (!run.has_devices) run.last_step_time.reset();
  run.key = key;
  run.job = job;
  run.has_devices = true;
}

DaemonMetrics::Run* DaemonMetrics::Find(const std::string& id) {
  for (auto& [device, run] : runs_) {
    if (run.job.id == id) return &run;
  }
  return nullptr;
}

void DaemonMetrics::JobLeftDevices(const std::string& id) {
  MutexLock lock(&mutex_);
  if (Run* const run = Find(id)) run->has_devices = false;
}

void DaemonMetrics::StepDone(const std::string& id, const StepRecord& record) {
  MutexLock lock(&mutex_);
  if (Run* const run = Find(id)) {
    step_seconds_.at(run->key).Observe(record.step_seconds);
    run->last_step = record;
    run->last_step_time = absl::Now();
    if (record.eval_loss.has_value()) {
      run->eval_loss = record.eval_loss;
      run->eval_losses = record.eval_losses;
    }
  }
  tokens_ += record.input_tokens;
  h2d_bytes_ += record.h2d_bytes;
  d2h_bytes_ += record.d2h_bytes;
  for (const auto& lane : kNamedLanes<double>) {
    lanes_.*lane.value += record.lane_busy_seconds.*lane.value;
  }
}

void DaemonMetrics::NoteDeviceChanged(absl::Time time) {
  MutexLock lock(&mutex_);
  device_changed_ = time;
}

void DaemonMetrics::RequestDone(std::string_view method, int code) {
  MutexLock lock(&mutex_);
  ++requests_[{MethodName(method), CodeName(code)}];
}

void DaemonMetrics::CallerRefused(const std::string& reason) {
  MutexLock lock(&mutex_);
  ++callers_refused_[reason];
}

void DaemonMetrics::ConnectionRefused(const std::string& reason) {
  MutexLock lock(&mutex_);
  ++connections_refused_[reason];
}

std::string DaemonMetrics::Page(const MeasuredNode& node) const {
  MetricPage page;
  page.Gauge("megatrain_build_info", "1; the labels say what runs.")
      .Add({{"version", version_}, {"device", device_}}, 1);
  AddJobs(node, &page);

  MutexLock lock(&mutex_);
  AddRuns(&page);
  AddLastSteps(&page);
  AddRanks(&page);
  page.Counter("megatrain_tokens_total", "Input tokens trained on, padding excluded.")
      .Add(static_cast<double>(tokens_));
  auto durations = page.Histogram("megatrain_step_duration_seconds", "Duration of steps.");
  for (const auto& [device, seconds] : step_seconds_) {
    durations.Add(LabelsOf(device), seconds.Collect());
  }
  auto lanes = page.Counter("megatrain_lane_busy_seconds_total",
                            "Time in which a lane was at work; of several ranks the longest.");
  for (const auto& lane : kNamedLanes<double>) lanes.Add({{"lane", lane.name}}, lanes_.*lane.value);
  page.Counter("megatrain_link_bytes_total", "Bytes over the link between host and device.")
      .Add({{"direction", "h2d"}}, static_cast<double>(h2d_bytes_))
      .Add({{"direction", "d2h"}}, static_cast<double>(d2h_bytes_));
  page.Counter("megatrain_nonfinite_steps_total",
               "Steps whose loss, gradient or update was not finite.")
      .Add(static_cast<double>(nonfinite_steps_));
  AddNode(node, &page);
  page.Gauge("megatrain_device_missing",
             "1 while the daemon waits for a device of the kind that its jobs have begun on.")
      .Add(node.device_missing ? 1 : 0);
  page.Gauge("megatrain_device_changed_timestamp_seconds",
             "When the daemon, at its start, took another kind of device than before.")
      .Add(UnixSeconds(device_changed_));
  auto requests = page.Counter("megatrain_grpc_requests_total", "RPCs that were answered.");
  for (const auto& [labels, count] : requests_) {
    requests.Add({{"method", labels.first}, {"code", labels.second}}, static_cast<double>(count));
  }
  auto callers = page.Counter("megatrain_authentication_failures_total",
                              "Calls and streams refused because it was not known who calls.");
  for (const auto& [reason, count] : callers_refused_) {
    callers.Add({{"reason", reason}}, static_cast<double>(count));
  }
  auto connections = page.Counter("megatrain_connections_refused_total",
                                  "Connections closed before anything was read from them.");
  for (const auto& [reason, count] : connections_refused_) {
    connections.Add({{"reason", reason}}, static_cast<double>(count));
  }
  page.Gauge("megatrain_tls_certificate_expiry_timestamp_seconds",
             "When the certificate that TLS is served with ends.")
      .Add(UnixSeconds(node.certificate_expires));
  return page.Text();
}

template <class ValueOf>
void DaemonMetrics::AddOfRuns(const char* name, const char* help, ValueOf value_of,
                              MetricPage* page) const {
  auto gauge = page->Gauge(name, help);
  for (const auto& [device, run] : runs_) {
    const std::optional<double> value = value_of(run);
    if (value.has_value()) gauge.Add(LabelsOf(device), *value);
  }
}

void DaemonMetrics::AddRuns(MetricPage* page) const {
  auto info = page->Gauge("megatrain_job_info", "1 for each job that has devices.");
  for (const auto& [device, run] : runs_) {
    if (!run.has_devices) continue;
    MetricLabels labels = LabelsOf(device, {{"job", run.job.id}, {"model", run.job.model_family}});
    if (!device.empty()) labels.push_back({"devices", absl::StrJoin(run.job.devices, ",")});
    info.Add(labels, 1);
  }
  auto bytes = page->Gauge("megatrain_device_bytes",
                           "Memory of a device that the job there has taken, by use.");
  for (const auto& [device, run] : runs_) {
    if (!run.has_devices || run.job.device_bytes == 0) continue;
    // All of them are listed, because each has a memory of its own.
    std::vector<std::string> devices = run.job.devices;
    if (devices.empty()) devices.push_back("");
    for (const std::string& each : devices) {
      bytes.Add(LabelsOf(each, {{"kind", "arena"}}), static_cast<double>(run.job.device_bytes));
    }
  }
  AddOfRuns(
      "megatrain_checkpoint_last_success_timestamp_seconds",
      "When the job's last verified checkpoint was written.",
      [](const Run& run) { return UnixSeconds(run.checkpoint_time); }, page);
  AddOfRuns(
      "megatrain_checkpoint_duration_seconds",
      "How long the job's last checkpoint took to be written and verified.",
      [](const Run& run) { return run.checkpoint_seconds; }, page);
}

template <class T, class LanesOf>
void DaemonMetrics::AddLanesOfRanks(const char* name, const char* help, LanesOf lanes_of,
                                    MetricPage* page) const {
  auto gauge = page->Gauge(name, help);
  for (const auto& [device, run] : runs_) {
    if (!run.last_step.has_value() || !run.last_step->spread.has_value()) continue;
    for (const auto& lane : kNamedLanes<T>) {
      gauge.Add(LabelsOf(device, {{"lane", lane.name}}),
                static_cast<double>(lanes_of(*run.last_step).*lane.value));
    }
  }
}

void DaemonMetrics::AddRanks(MetricPage* page) const {
  AddLanesOfRanks<int64_t>(
      "megatrain_slowest_rank",
      "Of a job of several ranks, the one whose lane was busy longest in the last step.",
      [](const StepRecord& last) { return last.spread->slowest; }, page);
  AddLanesOfRanks<double>(
      "megatrain_slowest_rank_lane_busy_seconds",
      "How long that rank's lane was busy in the last step.",
      [](const StepRecord& last) { return last.lane_busy_seconds; }, page);
  AddLanesOfRanks<double>(
      "megatrain_rank_lane_busy_mean_seconds",
      "How long the lane was busy in the last step, the mean over all ranks.",
      [](const StepRecord& last) { return last.spread->mean; }, page);
}

void DaemonMetrics::AddLastSteps(MetricPage* page) const {
  // Adds a gauge with a value of the last step of each run that has made one.
  const auto add = [&](const char* name, const char* help,
                       auto value_of) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    AddOfRuns(
        name, help,
        [&](const Run& run) {
          return run.last_step.has_value() ? std::optional<double>(value_of(*run.last_step))
                                           : std::nullopt;
        },
        page);
  };
  add("megatrain_step", "The job's last step.",
      [](const StepRecord& last) { return static_cast<double>(last.step); });
  add("megatrain_loss", "Loss of the last step's batch, before its update.",
      [](const StepRecord& last) { return last.loss; });
  AddOfRuns(
      "megatrain_eval_loss", "Last loss on the evaluation data.",
      [](const Run& run) { return run.eval_loss; }, page);
  auto sets = page->Gauge("megatrain_eval_set_loss", "Last loss on a named set of data.eval.");
  for (const auto& [device, run] : runs_) {
    for (const auto& [name, loss] : run.eval_losses) {
      sets.Add(LabelsOf(device, {{"set", name}}), loss);
    }
  }
  auto rewards = page->Gauge("megatrain_reward",
                             "Mean reward of the last step's chosen and rejected answers.");
  for (const auto& [device, run] : runs_) {
    if (!run.last_step.has_value() || !run.last_step->rewards.has_value()) continue;
    rewards.Add(LabelsOf(device, {{"answer", "chosen"}}), run.last_step->rewards->chosen)
        .Add(LabelsOf(device, {{"answer", "rejected"}}), run.last_step->rewards->rejected);
  }
  add("megatrain_reward_accuracy_ratio",
      "Part of the last step's pairs whose chosen answer has the higher reward.",
      [](const StepRecord& last) {
        return last.rewards ? std::optional(last.rewards->accuracies) : std::nullopt;
      });
  add("megatrain_router_busiest_ratio",
      "The most that an expert of any layer was chosen in the last step, over an even share.",
      [](const StepRecord& last) {
        return last.router ? std::optional(last.router->busiest) : std::nullopt;
      });
  add("megatrain_router_entropy_nats",
      "Mean entropy of the routers' distributions in the last step.", [](const StepRecord& last) {
        return last.router ? std::optional(last.router->entropy) : std::nullopt;
      });
  add("megatrain_gradient_norm", "L2 norm of the last step's gradient, before clipping.",
      [](const StepRecord& last) { return last.gradient_norm; });
  add("megatrain_learning_rate", "Learning rate of the last step.",
      [](const StepRecord& last) { return last.learning_rate; });
  AddOfRuns(
      "megatrain_mfu_ratio",
      "Model FLOP/s of the last step over those of the device's matrix products at the job's "
      "precision, as measured at start.",
      [](const Run& run) {
        const bool known = run.last_step.has_value() && run.job.peak_flops_per_second > 0;
        return known ? std::optional(run.last_step->model_flops_per_second /
                                     run.job.peak_flops_per_second)
                     : std::nullopt;
      },
      page);
  AddOfRuns(
      "megatrain_last_step_timestamp_seconds", "When the last step was done.",
      [](const Run& run) { return UnixSeconds(run.last_step_time); }, page);
}

}  // namespace megatrain

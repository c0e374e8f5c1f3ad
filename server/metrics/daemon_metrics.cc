#include "server/metrics/daemon_metrics.h"

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "server/metrics/metric_page.h"

namespace megatrain {
namespace {

// From a tiny model's step to one of a model that is streamed for an hour.
const prometheus::Histogram::BucketBoundaries& StepSecondsBuckets() {
  static const auto& buckets = *new prometheus::Histogram::BucketBoundaries{
      0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500};
  return buckets;
}

double UnixSeconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

const char* CodeName(int code) {
  static constexpr const char* kNames[] = {
      "OK",
      "CANCELLED",
      "UNKNOWN",
      "INVALID_ARGUMENT",
      "DEADLINE_EXCEEDED",
      "NOT_FOUND",
      "ALREADY_EXISTS",
      "PERMISSION_DENIED",
      "RESOURCE_EXHAUSTED",
      "FAILED_PRECONDITION",
      "ABORTED",
      "OUT_OF_RANGE",
      "UNIMPLEMENTED",
      "INTERNAL",
      "UNAVAILABLE",
      "DATA_LOSS",
      "UNAUTHENTICATED",
  };
  const bool known = code >= 0 && code < static_cast<int>(std::size(kNames));
  return kNames[known ? code : 2];
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
    // The last change of a queued job is the one that queued it.
    longest_wait = std::max(longest_wait, absl::ToDoubleSeconds(node.now - job->updated));
  }
  auto jobs = page->Gauge("megatrain_jobs", "Jobs in each state, ended ones included.");
  for (const JobState state : AllJobStates()) {
    jobs.Add({{"state", JobStateName(state)}}, counts[state]);
  }
  page->Gauge("megatrain_queue_wait_seconds",
              "How long the job that has waited longest is in the queue; 0 if none is.")
      .Add(longest_wait);
}

void AddMemory(const MeasuredNode& node, const std::optional<MeasuredJob>& job, MetricPage* page) {
  auto pool = page->Gauge("megatrain_host_pool_bytes",
                          "The pool of host memory by use; the sum is its capacity.");
  for (int kind = 0; kind < kHostKinds; ++kind) {
    const std::string name =
        absl::StrReplaceAll(HostKindName(static_cast<HostKind>(kind)), {{" ", "_"}});
    pool.Add({{"kind", name}}, static_cast<double>(node.pool_bytes[kind]));
  }
  pool.Add({{"kind", "free"}}, static_cast<double>(node.pool_free_bytes));

  auto device = page->Gauge("megatrain_device_bytes",
                            "Device memory that the job on the device has taken, by use.");
  if (job.has_value()) {
    for (const auto& [kind, bytes] : job->device_bytes) {
      device.Add({{"kind", kind}}, static_cast<double>(bytes));
    }
  }

  page->Gauge("megatrain_disk_size_bytes", "Size of the state directory's file system.")
      .Add(static_cast<double>(node.disk_bytes));
  page->Gauge("megatrain_disk_free_bytes", "What is free of the state directory's file system.")
      .Add(static_cast<double>(node.disk_free_bytes));
}

}  // namespace

DaemonMetrics::DaemonMetrics(std::string version, std::string device)
    : version_(std::move(version)),
      device_(std::move(device)),
      step_seconds_(StepSecondsBuckets()) {}

void DaemonMetrics::JobHasDevice(const MeasuredJob& job) {
  MutexLock lock(&mutex_);
  job_ = job;
  peak_flops_per_second_ = job.peak_flops_per_second;
  if (steps_of_ == job.id) return;
  steps_of_ = job.id;
  last_step_.reset();
  last_step_time_.reset();
  eval_loss_.reset();
  eval_losses_.clear();
  checkpoint_time_.reset();
  checkpoint_seconds_.reset();
}

void DaemonMetrics::JobLeftDevice(const std::string& id) {
  MutexLock lock(&mutex_);
  if (job_.has_value() && job_->id == id) job_.reset();
}

void DaemonMetrics::StepDone(const StepRecord& record) {
  step_seconds_.Observe(record.step_seconds);
  MutexLock lock(&mutex_);
  last_step_ = record;
  last_step_time_ = absl::Now();
  if (record.eval_loss.has_value()) {
    eval_loss_ = record.eval_loss;
    eval_losses_ = record.eval_losses;
  }
  tokens_ += record.input_tokens;
  h2d_bytes_ += record.h2d_bytes;
  d2h_bytes_ += record.d2h_bytes;
  const LaneSeconds& busy = record.lane_busy_seconds;
  lanes_.h2d += busy.h2d;
  lanes_.compute += busy.compute;
  lanes_.d2h += busy.d2h;
  lanes_.update += busy.update;
  lanes_.io += busy.io;
  lanes_.device_update += busy.device_update;
  lanes_.collective += busy.collective;
}

void DaemonMetrics::StepNotFinite() {
  MutexLock lock(&mutex_);
  ++nonfinite_steps_;
}

void DaemonMetrics::CheckpointDone(absl::Time time, double seconds) {
  MutexLock lock(&mutex_);
  checkpoint_time_ = time;
  checkpoint_seconds_ = seconds;
}

void DaemonMetrics::DeviceChanged(absl::Time time) {
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
  auto info = page.Gauge("megatrain_job_info", "1 for the job that has the device.");
  if (job_.has_value()) info.Add({{"job", job_->id}, {"model", job_->model_family}}, 1);
  AddLastStep(&page);
  page.Counter("megatrain_tokens_total", "Input tokens trained on, padding excluded.")
      .Add(static_cast<double>(tokens_));
  page.Histogram("megatrain_step_duration_seconds", "Duration of steps.", step_seconds_.Collect());
  page.Counter("megatrain_lane_busy_seconds_total", "Time in which a lane was at work.")
      .Add({{"lane", "h2d"}}, lanes_.h2d)
      .Add({{"lane", "compute"}}, lanes_.compute)
      .Add({{"lane", "d2h"}}, lanes_.d2h)
      .Add({{"lane", "update"}}, lanes_.update)
      .Add({{"lane", "io"}}, lanes_.io)
      .Add({{"lane", "device_update"}}, lanes_.device_update)
      .Add({{"lane", "collective"}}, lanes_.collective);
  page.Counter("megatrain_link_bytes_total", "Bytes over the link between host and device.")
      .Add({{"direction", "h2d"}}, static_cast<double>(h2d_bytes_))
      .Add({{"direction", "d2h"}}, static_cast<double>(d2h_bytes_));
  page.Counter("megatrain_nonfinite_steps_total",
               "Steps whose loss, gradient or update was not finite.")
      .Add(static_cast<double>(nonfinite_steps_));
  page.Gauge("megatrain_checkpoint_last_success_timestamp_seconds",
             "When the job's last verified checkpoint was written.")
      .Add(checkpoint_time_.has_value() ? std::optional(UnixSeconds(*checkpoint_time_))
                                        : std::nullopt);
  page.Gauge("megatrain_checkpoint_duration_seconds",
             "How long the job's last checkpoint took to be written and verified.")
      .Add(checkpoint_seconds_);
  AddMemory(node, job_, &page);
  page.Gauge("megatrain_device_missing",
             "1 while the daemon waits for a device of the kind that its jobs have begun on.")
      .Add(node.device_missing ? 1 : 0);
  page.Gauge("megatrain_device_changed_timestamp_seconds",
             "When the daemon, at its start, took another kind of device than before.")
      .Add(device_changed_.has_value() ? std::optional(UnixSeconds(*device_changed_))
                                       : std::nullopt);
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
      .Add(node.certificate_expires.has_value()
               ? std::optional(UnixSeconds(*node.certificate_expires))
               : std::nullopt);
  return page.Text();
}

// Of the job that has the device, or had it last.
void DaemonMetrics::AddLastStep(MetricPage* page) const {
  std::optional<double> step, loss, norm, rate, mfu, time;
  if (last_step_.has_value()) {
    step = static_cast<double>(last_step_->step);
    loss = last_step_->loss;
    norm = last_step_->gradient_norm;
    rate = last_step_->learning_rate;
    if (peak_flops_per_second_ > 0) {
      mfu = last_step_->model_flops_per_second / peak_flops_per_second_;
    }
    time = UnixSeconds(*last_step_time_);
  }
  page->Gauge("megatrain_step", "The job's last step.").Add(step);
  page->Gauge("megatrain_loss", "Loss of the last step's batch, before its update.").Add(loss);
  page->Gauge("megatrain_eval_loss", "Last loss on the evaluation data.").Add(eval_loss_);
  auto sets = page->Gauge("megatrain_eval_set_loss", "Last loss on a named set of data.eval.");
  for (const auto& [name, set_loss] : eval_losses_) sets.Add({{"set", name}}, set_loss);
  auto rewards = page->Gauge("megatrain_reward",
                             "Mean reward of the last step's chosen and rejected answers.");
  std::optional<double> accuracy;
  if (last_step_.has_value() && last_step_->rewards.has_value()) {
    rewards.Add({{"answer", "chosen"}}, last_step_->rewards->chosen)
        .Add({{"answer", "rejected"}}, last_step_->rewards->rejected);
    accuracy = last_step_->rewards->accuracies;
  }
  page->Gauge("megatrain_reward_accuracy_ratio",
              "Part of the last step's pairs whose chosen answer has the higher reward.")
      .Add(accuracy);
  std::optional<double> busiest, entropy;
  if (last_step_.has_value() && last_step_->router.has_value()) {
    busiest = last_step_->router->busiest;
    entropy = last_step_->router->entropy;
  }
  page->Gauge("megatrain_router_busiest_ratio",
              "The most that an expert of any layer was chosen in the last step, over an even "
              "share.")
      .Add(busiest);
  page->Gauge("megatrain_router_entropy_nats",
              "Mean entropy of the routers' distributions in the last step.")
      .Add(entropy);
  page->Gauge("megatrain_gradient_norm", "L2 norm of the last step's gradient, before clipping.")
      .Add(norm);
  page->Gauge("megatrain_learning_rate", "Learning rate of the last step.").Add(rate);
  page->Gauge("megatrain_mfu_ratio",
              "Model FLOP/s of the last step over those of the device's matrix products at the "
              "job's precision, as measured at start.")
      .Add(mfu);
  page->Gauge("megatrain_last_step_timestamp_seconds", "When the last step was done.").Add(time);
}

}  // namespace megatrain

#include "server/daemon/monitoring.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/version.h"

namespace megatrain {

namespace {

// Returns the names of the host's devices; none if there is one.
std::vector<std::string> NamesOfSeveral(const EngineHost& host) {
  std::vector<std::string> names;
  for (int i = 0; host.devices().count > 1 && i < host.devices().count; ++i) {
    names.push_back(host.devices().Name(i));
  }
  return names;
}

}  // namespace

std::unique_ptr<MetricsServer> ServeDeviceMissing(
    const DaemonConfig& config, const JobTable* jobs,
    const std::function<void(const std::string& line)>& log) {
  const std::string address = config.metrics_listen.value_or(kDefaultMetricsAddress);
  if (address.empty()) return nullptr;
  const auto metrics = std::make_shared<DaemonMetrics>(kVersion, "missing");
  absl::StatusOr<std::unique_ptr<MetricsServer>> server = MetricsServer::Start(
      address, {.page =
                    [metrics, jobs] {
                      MeasuredNode node;
                      node.jobs = jobs->All();
                      node.now = absl::Now();
                      node.device_missing = true;
                      return metrics->Page(node);
                    },
                .ready = [] { return absl::UnavailableError("starting: its device is missing"); }});
  if (server.ok()) return *std::move(server);
  log(absl::StrCat("metrics_listen: ", server.status().message()));
  return nullptr;
}

Monitoring::Monitoring(const EngineHost* host, const JobLedger* ledger, const NodeReporter* node,
                       OpenFiles files, TlsFileWatch* tls,
                       const std::function<void(const std::string& line)>& log)
    : host_(host),
      ledger_(ledger),
      node_(node),
      files_(std::move(files)),
      tls_(tls),
      metrics_(kVersion, host->devices().first, NamesOfSeveral(*host),
               [this](const RunRequest& run) { return Describe(run); }),
      refusals_(&metrics_, log) {}

absl::StatusOr<std::unique_ptr<Monitoring>> Monitoring::Start(
    const DaemonConfig& config, const EngineHost* host, const JobLedger* ledger,
    const NodeReporter* node, OpenFiles files, TlsFileWatch* tls,
    const std::function<void(const std::string& line)>& log) {
  std::unique_ptr<Monitoring> monitoring(
      new Monitoring(host, ledger, node, std::move(files), tls, log));
  if (absl::Status status = monitoring->Serve(config, log); !status.ok()) return status;
  return monitoring;
}

absl::Status Monitoring::Serve(const DaemonConfig& config,
                               const std::function<void(const std::string& line)>& log) {
  const std::string address = config.metrics_listen.value_or(kDefaultMetricsAddress);
  if (address.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<MetricsServer>> server = MetricsServer::Start(
      address,
      {.page = [this] { return metrics_.Page(Measure()); }, .ready = [this] { return Ready(); }});
  if (server.ok()) {
    server_ = std::move(*server);
    log(absl::StrCat("metrics on http://", server_->address(), "/metrics"));
    return absl::OkStatus();
  }
  const std::string error = absl::StrCat("metrics_listen: ", server.status().message());
  if (config.metrics_listen.has_value()) return absl::UnavailableError(error);
  // Nobody asked for this address: a second daemon on the machine is not kept from its work.
  log(absl::StrCat(error, "; no metrics are served: set metrics_listen to a free address"));
  return absl::OkStatus();
}

RequestObserver Monitoring::request_observer() {
  return [this](std::string_view method, int code) { metrics_.RequestDone(method, code); };
}

RefusalObserver Monitoring::refusal_observer() {
  return [this](const Refusal& refusal) { refusals_.Add(refusal); };
}

MeasuredJob Monitoring::Describe(const RunRequest& run) const {
  MeasuredJob job;
  if (host_->devices().count > 1) {
    for (const int device : run.devices) job.devices.push_back(host_->devices().Name(device));
  }
  // A job that runs was planned before; its files may be gone by now.
  job.model_family = "unknown";
  const HardwareRates rates = host_->rates();
  job.peak_flops_per_second =
      (run.spec.training.precision == Precision::kBf16 ? rates.bf16 : rates.fp32)
          .matmul_flops_per_second *
      static_cast<double>(run.devices.size()) / (rates.device_is_host ? host_->devices().count : 1);
  const absl::StatusOr<std::shared_ptr<FileSystem>> files = files_(run.uid, run.job_id);
  if (!files.ok()) return job;
  const absl::StatusOr<PlanReport> plan =
      PlanTraining(run.spec, host_->budget(), files->get(), run.devices);
  if (!plan.ok()) return job;
  job.model_family = plan->model_family;
  job.device_bytes = plan->device_bytes;
  return job;
}

MeasuredNode Monitoring::Measure() const {
  MeasuredNode measured;
  measured.jobs = ledger_->table().All();
  measured.endings = ledger_->table().Endings();
  measured.store_errors = ledger_->store_errors();
  measured.now = absl::Now();
  measured.pool = host_->pool_usage();
  measured.node = node_->Read();
  if (tls_ != nullptr) measured.certificate_expires = tls_->Current()->expires;
  return measured;
}

absl::Status Monitoring::Ready() const {
  switch (node_->state()) {
    case v1::Node::STARTING:
      return absl::UnavailableError("starting: host memory is being reserved");
    case v1::Node::READY:
      return absl::OkStatus();
    default:
      return absl::UnavailableError("stopping");
  }
}

}  // namespace megatrain

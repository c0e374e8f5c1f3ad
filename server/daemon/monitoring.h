// Monitoring shows what the daemon does: it serves the metrics page for Prometheus (MetricsServer),
// and reports to systemd (ServiceNotifier).
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_DAEMON_MONITORING_H_
#define MEGATRAIN_SERVER_DAEMON_MONITORING_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "engine/engine.h"
#include "server/config/daemon_config.h"
#include "server/daemon/node_reporter.h"
#include "server/daemon/refusal_monitor.h"
#include "server/daemon/service_notifier.h"
#include "server/files/open_files.h"
#include "server/identity/tls_file_watch.h"
#include "server/manager/job_ledger.h"
#include "server/metrics/daemon_metrics.h"
#include "server/metrics/metrics_server.h"
#include "server/transport/observers.h"

namespace megatrain {

// Serves the metrics page of a daemon whose device is missing. Its /readyz says that the daemon
// waits for the device. Returns null if the configuration wants no page, or if the address cannot
// be listened on, which is logged. `jobs` must outlive the server. `log` is called during the call
// only.
std::unique_ptr<MetricsServer> ServeDeviceMissing(
    const DaemonConfig& config, const JobTable* jobs,
    const std::function<void(const std::string& line)>& log);

class Monitoring {
 public:
  // Serves the metrics page, if the configuration wants one, and begins to send to the service
  // manager. `files` opens the files of jobs, and is called from any thread. `tls` may be null. All
  // pointers' targets must outlive this object. `log` is copied and called from any thread. Returns
  // Unavailable if metrics_listen is set and cannot be listened on. If the default address cannot
  // be listened on, that is logged, and there is no page.
  static absl::StatusOr<std::unique_ptr<Monitoring>> Start(
      const DaemonConfig& config, const EngineHost* host, const JobLedger* ledger,
      const NodeReporter* node, OpenFiles files, TlsFileWatch* tls,
      const std::function<void(const std::string& line)>& log);

  // Return observers that feed the metrics, the log of refusals and the service manager. They must
  // not be called after this object is destroyed.
  RequestObserver request_observer();
  RefusalObserver refusal_observer();
  std::vector<RunObserver*> run_observers() { return {&metrics_, &service_notifier_}; }
  // Records that the device is of another kind than when the daemon ran before.
  void NoteDeviceChanged() { metrics_.NoteDeviceChanged(absl::Now()); }
  ServiceNotifier& service_notifier() { return service_notifier_; }

 private:
  Monitoring(const EngineHost* host, const JobLedger* ledger, const NodeReporter* node,
             OpenFiles files, TlsFileWatch* tls,
             const std::function<void(const std::string& line)>& log);
  absl::Status Serve(const DaemonConfig& config,
                     const std::function<void(const std::string& line)>& log);
  MeasuredJob Describe(const RunRequest& run) const;
  MeasuredNode Measure() const;
  absl::Status Ready() const;

  const EngineHost* const host_;
  const JobLedger* const ledger_;
  const NodeReporter* const node_;
  const OpenFiles files_;
  TlsFileWatch* const tls_;
  DaemonMetrics metrics_;
  RefusalMonitor refusals_;
  ServiceNotifier service_notifier_;
  std::unique_ptr<MetricsServer> server_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_MONITORING_H_

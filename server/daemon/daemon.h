// megatraind serve: the store, the engine and the API of one state directory, put together.
//
// Life: Open reads the store and begins to answer calls, PinPool reserves the host pool and begins
// to run jobs, Stop saves what runs and ends. A process that dies at any point in between loses
// nothing that was announced; the next one goes on.
//
// Thread safety: one thread at a time; the API is answered on threads of its own.
#ifndef MEGATRAIN_SERVER_DAEMON_DAEMON_H_
#define MEGATRAIN_SERVER_DAEMON_DAEMON_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/host/engine_host.h"
#include "server/config/daemon_config.h"
#include "server/daemon/access.h"
#include "server/daemon/monitoring.h"
#include "server/daemon/node_monitor.h"
#include "server/files/job_files.h"
#include "server/files/open_files.h"
#include "server/manager/job_disk.h"
#include "server/manager/job_ledger.h"
#include "server/manager/job_manager.h"
#include "server/manager/job_remover.h"
#include "server/scheduler/run_mailbox.h"
#include "server/scheduler/scheduler.h"
#include "server/transport/grpc_server.h"
#include "server/worker/engine_job_runner.h"
#include "server/worker/export_queue.h"
#include "server/worker/job_records.h"

namespace megatrain {

struct DaemonHooks {
  // A line of the daemon's own log, and one that somebody should look at. From any thread.
  std::function<void(const std::string& line)> log;
  std::function<void(const std::string& line)> warn;
  // GPUs; may be null: there are none.
  GpuOpener open_gpu;
  // For how long Open waits for a device of the kind that jobs have begun on.
  absl::Duration device_patience = absl::Minutes(1);
  // Whether the daemon is asked to stop; may be null.
  std::function<bool()> cancelled;
  // Beside the daemon's own, told before the scheduler; may be null. As the hooks, it must outlive
  // the daemon.
  RunObserver* run_observer = nullptr;
  // A job hangs and cannot be ended but with the process: must not return.
  std::function<void()> end_process;
};

class Daemon {
 public:
  // InvalidArgument if the configuration is wrong. Other errors may pass: FailedPrecondition if
  // another daemon has the state directory or a socket, NotFound if a root is not there,
  // Unavailable if a device is (settle_device.h). Cancelled if that was waited for and the daemon
  // is asked to stop.
  static absl::StatusOr<std::unique_ptr<Daemon>> Open(const DaemonConfig& config,
                                                      const DaemonHooks& hooks);
  // As Stop, if it was not called.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Until this returns OK, jobs are listed and wait, and new ones are refused as STARTING.
  // Cancelled if `cancelled` became true; ResourceExhausted if there is not that much memory.
  absl::Status PinPool(const std::function<bool()>& cancelled);

  // Takes over what of `config` can be changed while jobs run: limits, administrators, the files of
  // TLS and tokens. Keys that need a restart are named in the log. An error changes nothing.
  absl::Status Reload(const DaemonConfig& config);

  // Running jobs are saved and go on when the daemon is started again; takes as long as the saves.
  void Stop();

 private:
  Daemon(const DaemonConfig& config, const DaemonHooks& hooks);
  absl::Status OpenStore();
  absl::Status OpenJobFiles();
  absl::Status OpenDevice();
  absl::Status AwaitDevice(const absl::Status& refused);
  OpenFiles FilesOfJobs() const;
  void MeasureRates();
  // STARTING until PinPool has returned.
  absl::Status CheckStarted() const;
  JobManager::Options ManagerOptions();

  DaemonConfig config_;
  const DaemonHooks hooks_;
  bool stopped_ = false;
  bool device_changed_ = false;  // at this start
  // PinPool has made the runner and the scheduler.
  std::atomic<bool> started_{false};

  // In the order of their making; each uses those before it.
  std::unique_ptr<JobRecordsDirectory> records_;
  std::unique_ptr<JobLedger> ledger_;
  std::unique_ptr<JobDisk> disk_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<JobFiles> job_files_;
  std::unique_ptr<EngineHost> host_;
  std::unique_ptr<JobManager> manager_;
  std::unique_ptr<JobRemover> remover_;
  std::unique_ptr<NodeMonitor> monitor_;
  std::unique_ptr<Monitoring> monitoring_;
  ExportQueue exports_;
  RunMailbox mailbox_;
  std::unique_ptr<EngineJobRunner> runner_;  // used by calls when the daemon is no longer starting
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_DAEMON_H_

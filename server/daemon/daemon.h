// Daemon is what `megatraind serve` runs: the store, the engine and the API of one state directory.
//
// Open reads the store and begins to answer calls. BeginJobs reserves the host pool and begins to
// run jobs. Stop saves running jobs and ends the server. If the process dies at any point in
// between, no change that a caller was told of is lost, and the next process goes on with the jobs.
//
// Thread safety: one thread at a time calls the methods. gRPC's threads answer the API.
#ifndef MEGATRAIN_SERVER_DAEMON_DAEMON_H_
#define MEGATRAIN_SERVER_DAEMON_DAEMON_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/host/engine_host.h"
#include "server/config/daemon_config.h"
#include "server/daemon/access.h"
#include "server/daemon/monitoring.h"
#include "server/daemon/node_reporter.h"
#include "server/files/job_files.h"
#include "server/files/open_files.h"
#include "server/jobs/user_limits.h"
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

// Functions and pointers that the daemon calls. The struct is copied; the objects that the
// functions refer to, and `run_observer`, must outlive the daemon.
struct DaemonHooks {
  // The daemon calls these with lines for its log, from any thread and from several at once. It
  // calls `warn` with the lines that an operator should look at, and `log` with the others.
  std::function<void(const std::string& line)> log;
  std::function<void(const std::string& line)> warn;
  // Opens a GPU. Null: the program has no GPU support.
  GpuOpener open_gpu;
  // Loads NCCL, for jobs on several GPUs. Null: the program has none.
  NcclLoader load_nccl;
  // How long Open waits, at most, for a device of the kind that jobs have begun on.
  absl::Duration device_patience = absl::Minutes(1);
  WatchdogOptions watchdog = {};  // when a job counts as hanging
  // Returns true if the daemon is asked to stop. Open calls it while it waits for a device. May be
  // null.
  std::function<bool()> cancelled;
  // Told of the events of all runs, after the metrics and before the scheduler. Null: none.
  RunObserver* run_observer = nullptr;
  // Ends the process and must not return. The daemon calls it when a job hangs, because no thread
  // can end another, and when the device no longer works in this process. It is called on the job's
  // thread or on the thread of the job's watchdog.
  std::function<void()> end_process;
  // The daemon calls it in place of end_process if it has several devices. It must return at once,
  // and may be called more than once, on the same threads. It has another thread call Stop, which
  // saves the jobs on the other devices. Afterwards the process must end without destroying the
  // Daemon, because a thread of the Daemon may hang. The process is then to be started again.
  std::function<void()> restart;
};

class Daemon {
 public:
  // Opens the store and the device, and begins to answer calls. REQUIRES: `log`, `warn`,
  // `end_process` and `restart` of `hooks` are set.
  //
  // These errors last until something is mended:
  // - InvalidArgument: the configuration is wrong.
  // - DataLoss: the store or the file of settle_device.h is damaged.
  // - Unimplemented: the kernel cannot keep paths beneath the roots.
  // - OutOfRange: a TLS file has more than 1 MiB.
  // Cancelled tells that `cancelled` returned true while Open waited for a device. FileError's
  // other codes are possible too. Trying again later may help after these:
  // - FailedPrecondition: another daemon has the state directory or a socket, or a GPU that the
  //   configuration asks for cannot be used (ChooseDevice). A store of a newer version, or another
  //   program's database in its place, has this code too, and stays.
  // - NotFound: a root, a configured file, or an administrator's account is missing.
  // - Unavailable: the device is missing (settle_device.h), an address cannot be listened on, or
  //   the account database does not answer.
  // - ResourceExhausted: the disk of the store is full, or there is no memory for the device.
  static absl::StatusOr<std::unique_ptr<Daemon>> Open(const DaemonConfig& config,
                                                      const DaemonHooks& hooks);
  // Stops, if Stop was not called.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Measures the machine's rates, reserves the host pool (minutes for a terabyte), and begins to
  // run jobs. Until it returns OK, jobs are listed and wait, and calls that need the engine
  // (create, plan, checkpoint, export) fail as Unavailable (STARTING). To be called once, after
  // Open. `cancelled` may be null, is used during the call only, and may be called from several
  // threads at once.
  //
  // Returns Cancelled if `cancelled` returned true, ResourceExhausted if there is not enough
  // memory, and the errors of EngineHost::DefaultPoolBytes and ReservePool. After an error no job
  // runs, and only Stop and the destructor may follow. Rates that cannot be measured are no error.
  absl::Status BeginJobs(const std::function<bool()>& cancelled);

  // Takes over what can change while jobs run: limits, the number of ended jobs kept,
  // administrators, the TLS files and the tokens file. (The level of the log is the caller's.)
  // Other keys that differ need a restart, and a line for `warn` names them. Returns the errors of
  // Access::Reload; limits and the number of jobs kept are then unchanged. REQUIRES: BeginJobs
  // returned OK, and Stop was not called.
  absl::Status Reload(const DaemonConfig& config);

  // Saves running jobs, which go on when the daemon is started again. Abandons exports, and stops
  // the server. Takes as long as the saves, and at most some seconds more for calls under way. A
  // second call does nothing.
  void Stop();

 private:
  Daemon(const DaemonConfig& config, const DaemonHooks& hooks);
  absl::Status OpenStore();
  absl::Status OpenJobFiles();
  absl::Status OpenDevice();
  absl::Status AwaitDevice(const absl::Status& refused);
  // Measures the files of all jobs, for limits.disk_per_user.
  void MeasureDisk();
  OpenFiles FilesOfJobs() const;
  void MeasureRates();
  // Plans a job on an idle host, for the scheduler. Returns nullopt if its files cannot be read.
  std::optional<JobForecast> Forecast(const Job& job) const;
  // Called when a job hangs or its device is lost, so that only a new process can go on with it.
  // Starts no more jobs, begins to save the other jobs, and calls hooks_.restart.
  void SaveOthersAndRestart();
  // Returns Unavailable (STARTING) until the daemon is ready.
  absl::Status CheckStarted() const;
  JobManager::Options ManagerOptions();

  const DaemonConfig config_;
  const DaemonHooks hooks_;
  bool stopped_ = false;
  bool device_changed_ = false;  // at this start
  // BeginJobs has made the runner and the scheduler.
  std::atomic<bool> started_{false};

  // The members are in the order in which they are made; each uses those before it.
  SharedUserLimits limits_;
  std::unique_ptr<JobRecordsDirectory> records_;
  std::unique_ptr<JobLedger> ledger_;
  std::unique_ptr<JobDisk> disk_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<JobFiles> job_files_;
  std::unique_ptr<EngineHost> host_;
  std::unique_ptr<JobManager> manager_;
  std::unique_ptr<JobRemover> remover_;
  std::unique_ptr<NodeReporter> node_reporter_;
  std::unique_ptr<Monitoring> monitoring_;
  ExportQueue exports_;
  RunMailbox mailbox_;
  std::unique_ptr<EngineJobRunner> runner_;  // used by calls when the daemon is no longer starting
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_DAEMON_H_

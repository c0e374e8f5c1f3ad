// What the daemon tells the service manager that started it: systemd's notify protocol. Without
// NOTIFY_SOCKET in the environment nothing is told and no thread is started.
//
//   READY=1                as soon as jobs can run
//   STATUS=                what runs, for `systemctl status`; jobs by their opaque ids
//   WATCHDOG=1             as long as no run hangs, if the manager wants it (WATCHDOG_USEC)
//   EXTEND_TIMEOUT_USEC=   while starting (memory is reserved) and stopping (jobs are saved), so
//                          that only silence, not duration, ends the process; while a job is saved
//                          at least twice what its last checkpoint took, the state's bytes over the
//                          disk's rate
//   RELOADING=1            while the configuration is read again, with MONOTONIC_USEC= of its begin
//   STOPPING=1
//
// Thread safety: all methods may be called from any thread; none waits for the manager.
// Invariants: after Hangs() nothing keeps the manager from ending the process any more.
#ifndef MEGATRAIN_SERVER_DAEMON_SERVICE_MANAGER_H_
#define MEGATRAIN_SERVER_DAEMON_SERVICE_MANAGER_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "server/worker/job_runner.h"

namespace megatrain {

class ServiceManager : public RunObserver {
 public:
  struct Options {
    // Between two messages of the thread: a status is at most this old. With a watchdog, at most a
    // third of its time.
    double interval_seconds = 5;
    // What a message asks for while starting and stopping, at least.
    double extension_seconds = 60;
  };

  // Takes NOTIFY_SOCKET and WATCHDOG_USEC from the environment as they are now.
  explicit ServiceManager(Options options);
  ServiceManager() : ServiceManager(Options()) {}
  ~ServiceManager() override;

  // Before Ready, what the daemon is doing: "reserving 12.5 of 64 GiB of host memory".
  void Starting(const std::string& activity);
  void Ready();
  // The configuration is read again; until Ready.
  void Reloading();
  void Stopping();
  // A run has stood still for longer than it may: the process is about to end, or hangs.
  void Hangs();

  void Tell(const RunRequest& run, const JobRunEvent& event) override;

 private:
  enum class Phase { kStarting, kReady, kReloading, kStopping };

  void SetStatus(const std::string& job_id, std::string status);
  void Loop();
  // What is to be told now; "" = nothing.
  std::string Message() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a save of the job that runs will take, as far as is known; 0 = it is not.
  double SaveSeconds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string StatusLine() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  bool told_to_ = false;  // there is a manager
  bool watchdog_ = false;
  double interval_seconds_ = 0;
  Mutex mutex_;
  CondVar changed_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kStarting;
  bool phase_told_ ABSL_GUARDED_BY(mutex_) = true;
  // When a reload began that has not been told of; 0 = there is none.
  int64_t reload_microseconds_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::string job_id_ ABSL_GUARDED_BY(mutex_);  // that status_ is of
  int64_t total_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the last checkpoint, and whose it was.
  std::string saved_job_id_ ABSL_GUARDED_BY(mutex_);
  double save_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point stopping_since_ ABSL_GUARDED_BY(mutex_);
  std::string status_ ABSL_GUARDED_BY(mutex_);
  std::string told_status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_SERVICE_MANAGER_H_

// ServiceNotifier tells the service manager that started the daemon what happens, by systemd's
// notify protocol. Without NOTIFY_SOCKET in the environment nothing is sent.
//
//   READY=1                as soon as jobs can run, and after a reload
//   STATUS=                what runs, for `systemctl status`; names jobs by their ids only
//   WATCHDOG=1             until Hangs() is called, if the manager wants it (WATCHDOG_USEC)
//   EXTEND_TIMEOUT_USEC=   while starting and stopping
//   RELOADING=1            when a reload of the configuration begins, with MONOTONIC_USEC=
//   STOPPING=1             when running jobs begin to be saved
//
// With EXTEND_TIMEOUT_USEC= starting and stopping may take any time; the manager ends the process
// only if it falls silent. While starting and stopping, every message asks for at least
// extension_seconds. While stopping it asks also for at least twice as long as the last checkpoint
// of any job took, among jobs that have not ended and checkpoints that this process saved.
//
// Thread safety: all methods may be called from any thread. None waits for the manager; the
// destructor does, until the last message is sent.
// Invariants: messages made after Hangs() neither feed the watchdog nor extend a timeout, so that
// the manager can end the process.
#ifndef MEGATRAIN_SERVER_DAEMON_SERVICE_NOTIFIER_H_
#define MEGATRAIN_SERVER_DAEMON_SERVICE_NOTIFIER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "server/worker/job_runner.h"

namespace megatrain {

class ServiceNotifier : public RunObserver {
 public:
  struct Options {
    // The time between messages, so that a status is at most this old. A message with nothing to
    // say is not sent. With a watchdog, messages are sent at least three times within its time.
    double interval_seconds = 5;
    // The least that EXTEND_TIMEOUT_USEC= asks for.
    double extension_seconds = 60;
  };

  // Reads WATCHDOG_USEC, and whether NOTIFY_SOCKET is set, from the environment once. Each message
  // reads NOTIFY_SOCKET again, so that it must stay set while this lives.
  explicit ServiceNotifier(Options options);
  ServiceNotifier() : ServiceNotifier(Options()) {}
  // Sends what is not sent yet of Ready, Reloading and Stopping, and waits for it.
  ~ServiceNotifier() override;

  // Sets what the daemon is doing before Ready: "reserving 12.5 of 64 GiB of host memory".
  void Starting(const std::string& activity);
  // Says that jobs can run, or that a reload is over. REQUIRES: Stopping was not called.
  void Ready();
  // Says that the configuration is being read again. Ready ends this. REQUIRES: Ready was called,
  // and Stopping was not.
  void Reloading();
  // Says that the daemon stops and that running jobs are saved.
  void Stopping();
  // Says that a run has stood still for longer than it may, so that the process is about to end or
  // hangs.
  void Hangs();

  // Takes the status, and the duration of the last checkpoint, from a run's event. Sends it with
  // the next message.
  void Tell(const RunRequest& run, const JobRunEvent& event) override;

 private:
  enum class Phase { kStarting, kReady, kReloading, kStopping };

  // JobStatus holds what the service manager is told of a job that has not ended.
  struct JobStatus {
    std::string status;
    bool paused = false;
    int64_t total_steps = 0;
    double save_seconds = 0;  // of its last checkpoint; 0 = not known
  };

  void Loop();
  // Returns the message to send now; "" = none.
  std::string Message() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns how long a save of the running jobs will take; 0 = not known.
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
  // The begin of a reload that has not been told of; 0 = there is none.
  int64_t reload_microseconds_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, JobStatus> jobs_ ABSL_GUARDED_BY(mutex_);  // by id
  std::chrono::steady_clock::time_point stopping_since_ ABSL_GUARDED_BY(mutex_);
  std::string status_ ABSL_GUARDED_BY(mutex_);  // while there are no jobs
  std::string told_status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_SERVICE_NOTIFIER_H_

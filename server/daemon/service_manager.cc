#include "server/daemon/service_manager.h"

#include <systemd/sd-daemon.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/thread_name.h"

namespace megatrain {

ServiceManager::ServiceManager(Options options)
    : options_(options), interval_seconds_(options.interval_seconds) {
  told_to_ = getenv("NOTIFY_SOCKET") != nullptr;
  if (!told_to_) return;
  uint64_t watchdog_microseconds = 0;
  watchdog_ = sd_watchdog_enabled(/*unset_environment=*/0, &watchdog_microseconds) > 0;
  if (watchdog_) {
    interval_seconds_ =
        std::min(interval_seconds_, 1e-6 * static_cast<double>(watchdog_microseconds) / 3);
  }
  thread_ = std::thread([this] { Loop(); });
}

ServiceManager::~ServiceManager() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void ServiceManager::Starting(const std::string& activity) { SetStatus("", activity); }

void ServiceManager::Ready() {
  MutexLock lock(&mutex_);
  phase_ = Phase::kReady;
  phase_told_ = false;
  if (job_id_.empty()) status_ = "no job runs";
  changed_.NotifyAll();
}

void ServiceManager::Reloading() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  MutexLock lock(&mutex_);
  phase_ = Phase::kReloading;
  phase_told_ = false;
  reload_microseconds_ = int64_t{1'000'000} * now.tv_sec + now.tv_nsec / 1000;
  changed_.NotifyAll();
}

void ServiceManager::Stopping() {
  MutexLock lock(&mutex_);
  phase_ = Phase::kStopping;
  stopping_since_ = std::chrono::steady_clock::now();
  phase_told_ = false;
  changed_.NotifyAll();
}

void ServiceManager::Hangs() {
  MutexLock lock(&mutex_);
  hangs_ = true;
}

// A status waits for the next message: steps may be many a second.
void ServiceManager::SetStatus(const std::string& job_id, std::string status) {
  MutexLock lock(&mutex_);
  job_id_ = job_id;
  status_ = std::move(status);
}

void ServiceManager::Tell(const RunRequest& run, const JobRunEvent& event) {
  const std::string& id = run.job_id;
  std::visit(Overloaded{[&](const TrainingActivity& activity) {
                          if (activity.phase != TrainingPhase::kPreparing) return;
                          std::string status = absl::StrCat("job ", id, ": ", activity.what);
                          if (activity.fraction >= 0) {
                            absl::StrAppendFormat(&status, " (%.0f%%)", 100 * activity.fraction);
                          }
                          SetStatus(id, std::move(status));
                        },
                        [&](const StepsBegin& begin) {
                          SetStatus(id, absl::StrCat("job ", id, ": step ", begin.first_step,
                                                     " of ", begin.total_steps));
                          MutexLock lock(&mutex_);
                          total_steps_ = begin.total_steps;
                        },
                        [&](const StepRecord& record) {
                          MutexLock lock(&mutex_);
                          job_id_ = id;
                          status_ = absl::StrFormat(
                              "job %s: step %d of %d, loss %.4f, %.0f tokens/s", id, record.step,
                              total_steps_, record.loss, record.tokens_per_second);
                        },
                        [&](const CheckpointSaved& saved) {
                          MutexLock lock(&mutex_);
                          saved_job_id_ = id;
                          save_seconds_ = saved.seconds;
                        },
                        [&](const TrainingPause&) {
                          MutexLock lock(&mutex_);
                          if (job_id_ == id) status_ = absl::StrCat("job ", id, ": paused");
                        },
                        [&](const RunEnd&) {
                          MutexLock lock(&mutex_);
                          if (job_id_ != id) return;
                          job_id_.clear();
                          status_ = "no job runs";
                        },
                        [](const auto&) {}},
             event);
}

double ServiceManager::SaveSeconds() const {
  return !job_id_.empty() && job_id_ == saved_job_id_ ? save_seconds_ : 0;
}

std::string ServiceManager::StatusLine() const {
  std::string line = status_;
  if (phase_ == Phase::kStopping) {
    line = absl::StrCat("stopping; ", status_);
    if (!job_id_.empty()) {
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - stopping_since_).count();
      absl::StrAppendFormat(&line, "; saving for %.0f s", seconds);
      if (SaveSeconds() > 0) {
        absl::StrAppendFormat(&line, ", its last checkpoint took %.0f s", SaveSeconds());
      }
    }
  }
  // A line end would begin another assignment.
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

std::string ServiceManager::Message() {
  std::string message;
  if (reload_microseconds_ > 0) {
    // A message of its own. Where the reload is over by now, READY=1 comes in the next.
    phase_told_ = phase_ == Phase::kReloading;
    return absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", std::exchange(reload_microseconds_, 0),
                        "\n");
  }
  if (!phase_told_) {
    absl::StrAppend(&message, phase_ == Phase::kReady ? "READY=1\n" : "STOPPING=1\n");
    phase_told_ = true;
  }
  if (std::string line = StatusLine(); line != told_status_) {
    absl::StrAppend(&message, "STATUS=", line, "\n");
    told_status_ = std::move(line);
  }
  if (hangs_) return message;
  if (watchdog_) absl::StrAppend(&message, "WATCHDOG=1\n");
  if (phase_ == Phase::kStarting || phase_ == Phase::kStopping) {
    double seconds = options_.extension_seconds;
    if (phase_ == Phase::kStopping) seconds = std::max(seconds, 2 * SaveSeconds());
    absl::StrAppend(&message, "EXTEND_TIMEOUT_USEC=", static_cast<int64_t>(1e6 * seconds), "\n");
  }
  return message;
}

void ServiceManager::Loop() {
  NameThisThread("notifier");
  bool ending = false;
  while (!ending) {
    std::string message;
    {
      MutexLock lock(&mutex_);
      message = Message();
    }
    if (!message.empty()) sd_notify(/*unset_environment=*/0, message.c_str());
    MutexLock lock(&mutex_);
    // What was set while the message was sent is told at once.
    if (phase_told_ && !ending_) changed_.WaitFor(&mutex_, interval_seconds_);
    ending = ending_ && phase_told_;
  }
}

}  // namespace megatrain

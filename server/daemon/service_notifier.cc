#include "server/daemon/service_notifier.h"

#include <systemd/sd-daemon.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/thread_name.h"

namespace megatrain {
namespace {

constexpr char kNoJob[] = "no job runs";

}  // namespace

ServiceNotifier::ServiceNotifier(Options options)
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

ServiceNotifier::~ServiceNotifier() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void ServiceNotifier::Starting(const std::string& activity) {
  MutexLock lock(&mutex_);
  status_ = activity;
}

void ServiceNotifier::Ready() {
  MutexLock lock(&mutex_);
  phase_ = Phase::kReady;
  phase_told_ = false;
  status_ = kNoJob;
  changed_.NotifyAll();
}

void ServiceNotifier::Reloading() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  MutexLock lock(&mutex_);
  phase_ = Phase::kReloading;
  phase_told_ = false;
  reload_microseconds_ = int64_t{1'000'000} * now.tv_sec + now.tv_nsec / 1000;
  changed_.NotifyAll();
}

void ServiceNotifier::Stopping() {
  MutexLock lock(&mutex_);
  phase_ = Phase::kStopping;
  stopping_since_ = std::chrono::steady_clock::now();
  phase_told_ = false;
  changed_.NotifyAll();
}

void ServiceNotifier::Hangs() {
  MutexLock lock(&mutex_);
  hangs_ = true;
}

// A status waits for the next message: steps may be many a second.
void ServiceNotifier::Tell(const RunRequest& run, const JobRunEvent& event) {
  MutexLock lock(&mutex_);
  if (std::holds_alternative<RunEnd>(event)) {
    jobs_.erase(run.job_id);
    status_ = kNoJob;
    return;
  }
  JobStatus& job = jobs_[run.job_id];
  const auto set = [&](const std::string& what) {
    job.status = absl::StrCat("job ", run.job_id, ": ", what);
    job.paused = false;
  };
  std::visit(
      Overloaded{[&](const TrainingActivity& activity) {
                   if (activity.phase != TrainingPhase::kPreparing) return;
                   set(activity.fraction < 0 ? activity.what
                                             : absl::StrFormat("%s (%.0f%%)", activity.what,
                                                               100 * activity.fraction));
                 },
                 [&](const StepsBegin& begin) {
                   set(absl::StrCat("step ", begin.first_step, " of ", begin.total_steps));
                   job.total_steps = begin.total_steps;
                 },
                 [&](const StepRecord& record) {
                   set(absl::StrFormat("step %d of %d, loss %.4f, %.0f tokens/s", record.step,
                                       job.total_steps, record.loss, record.tokens_per_second));
                 },
                 [&](const CheckpointSaved& saved) { job.save_seconds = saved.seconds; },
                 [&](const TrainingPause&) {
                   set("paused");
                   job.paused = true;
                 },
                 [](const auto&) {}},
      event);
}

double ServiceNotifier::SaveSeconds() const {
  double seconds = 0;
  for (const auto& [id, job] : jobs_) seconds = std::max(seconds, job.save_seconds);
  return seconds;
}

std::string ServiceNotifier::StatusLine() const {
  // Jobs that are paused are told of only if none runs.
  const bool all_paused =
      std::all_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job.second.paused; });
  std::vector<std::string> told;
  for (const auto& [id, job] : jobs_) {
    if (!job.status.empty() && job.paused == all_paused) told.push_back(job.status);
  }
  std::string line = told.empty() ? status_ : absl::StrJoin(told, "; ");
  if (phase_ == Phase::kStopping) {
    line = absl::StrCat("stopping; ", line);
    if (!jobs_.empty()) {
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

std::string ServiceNotifier::Message() {
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

void ServiceNotifier::Loop() {
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

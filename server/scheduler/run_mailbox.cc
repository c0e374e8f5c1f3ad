#include "server/scheduler/run_mailbox.h"

#include <algorithm>
#include <chrono>

namespace megatrain {
namespace {

// The mean forgets: a step counts for a tenth.
constexpr double kPaceShare = 0.1;

}  // namespace

void RunMailbox::Post(Report report) {
  MutexLock lock(&mutex_);
  mail_.reports.push_back(std::move(report));
  woken_ = true;
  changed_.NotifyAll();
}

void RunMailbox::PostEnded(Report report) {
  {
    MutexLock lock(&mutex_);
    pace_.erase(report.job_id);
  }
  Post(std::move(report));
}

void RunMailbox::PostStep(const std::string& job_id, const StepRecord& record) {
  MutexLock lock(&mutex_);
  double& pace = pace_[job_id];
  pace =
      pace == 0 ? record.step_seconds : (1 - kPaceShare) * pace + kPaceShare * record.step_seconds;
  mail_.progress[job_id] = {record, pace};
  changed_.NotifyAll();
}

void RunMailbox::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  changed_.NotifyAll();
}

RunMailbox::Mail RunMailbox::Take() {
  MutexLock lock(&mutex_);
  woken_ = false;
  return std::exchange(mail_, Mail{});
}

void RunMailbox::Wait(double seconds, double step_seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  MutexLock lock(&mutex_);
  for (;;) {
    if (woken_) return;
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    const double end = mail_.progress.empty() ? seconds : std::min(seconds, step_seconds);
    if (passed >= end) return;
    changed_.WaitFor(&mutex_, end - passed);
  }
}

RunCallbacks PostingCallbacks(const std::string& job_id, std::shared_ptr<RunMailbox> mailbox) {
  const auto post = [job_id, mailbox](std::function<void(RunFacts*)> tell) {
    mailbox->Post({job_id, std::move(tell)});
  };
  RunCallbacks callbacks;
  callbacks.running = [post](int64_t first_step, int64_t total_steps) {
    post([first_step, total_steps](RunFacts* facts) {
      TellRunning(first_step, total_steps, facts);
    });
  };
  callbacks.step = [job_id, mailbox](const StepRecord& record) {
    mailbox->PostStep(job_id, record);
  };
  callbacks.checkpoint = [post](int64_t step, const std::string&, double) {
    post([step](RunFacts* facts) {
      facts->checkpoint_step = std::max(facts->checkpoint_step, step);
    });
  };
  callbacks.paused = [post](const RunPause& pause) {
    post([pause](RunFacts* facts) { TellPaused(pause, facts); });
  };
  callbacks.ended = [job_id, mailbox](const RunEnd& end) {
    mailbox->PostEnded({job_id, [end](RunFacts* facts) { TellEnded(end, facts); }});
  };
  return callbacks;
}

}  // namespace megatrain

#include "tests/bench/daemon/job_follower.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

JobFollower::JobFollower(const DaemonProcess& daemon, const std::string& job)
    : jobs_(v1::JobService::NewStub(daemon.NewChannel())) {
  v1::WatchJobRequest request;
  request.set_name(job);
  reader_ = jobs_->WatchJob(&context_, request);
  thread_ = std::thread([this] { Run(); });
}

JobFollower::~JobFollower() {
  context_.TryCancel();
  thread_.join();
}

absl::StatusOr<JobFollower::Clock::time_point> JobFollower::Await(v1::Job::State state) {
  const Clock::time_point deadline = Clock::now() + std::chrono::minutes(2);
  MutexLock lock(&mutex_);
  for (;;) {
    while (seen_ < heard_.size()) {
      const auto& [heard, time] = heard_[seen_++];
      if (heard == state) return time;
    }
    if (ended_ || Clock::now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("no event of state ", v1::Job::State_Name(state)));
    }
    changed_.WaitFor(&mutex_, 1.0);
  }
}

void JobFollower::Run() {
  v1::WatchJobResponse message;
  while (reader_->Read(&message)) {
    if (!message.has_event()) continue;
    MutexLock lock(&mutex_);
    heard_.emplace_back(message.event().to_state(), Clock::now());
    changed_.NotifyAll();
  }
  reader_->Finish();
  MutexLock lock(&mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace megatrain

// A runner whose runs others look on.
#ifndef MEGATRAIN_SERVER_WORKER_OBSERVED_JOB_RUNNER_H_
#define MEGATRAIN_SERVER_WORKER_OBSERVED_JOB_RUNNER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/worker/job_runner.h"
#include "server/worker/run_observer.h"

namespace megatrain {

// Passes every request on, and tells the observers what a run tells, each before the run's owner.
class ObservedJobRunner : public JobRunner {
 public:
  // `runner` must outlive this; the observers must outlive `runner`, whose runs may go on.
  ObservedJobRunner(JobRunner* runner, std::vector<RunObserver*> observers)
      : runner_(runner), observers_(std::move(observers)) {}

  absl::Status Start(RunRequest request, RunCallbacks callbacks) override;
  absl::Status Pause(const std::string& job_id, bool release_host) override {
    return runner_->Pause(job_id, release_host);
  }
  absl::Status Resume(const std::string& job_id) override { return runner_->Resume(job_id); }
  absl::Status Cancel(const std::string& job_id) override { return runner_->Cancel(job_id); }
  absl::Status Checkpoint(const std::string& job_id) override {
    return runner_->Checkpoint(job_id);
  }
  absl::Status Stop(const std::string& job_id) override { return runner_->Stop(job_id); }
  void Export(const std::string& checkpoint, const std::string& directory,
              std::shared_ptr<FileSystem> files,
              std::function<void(const absl::Status& status)> done) override {
    runner_->Export(checkpoint, directory, std::move(files), std::move(done));
  }

 private:
  JobRunner* const runner_;
  const std::vector<RunObserver*> observers_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_OBSERVED_JOB_RUNNER_H_

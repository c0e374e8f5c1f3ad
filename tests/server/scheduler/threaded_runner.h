// A JobRunner whose jobs count steps on threads of their own and do what they are asked, as the
// contract in job_runner.h has it: what the engine does, without the training.
#ifndef MEGATRAIN_TESTS_SERVER_SCHEDULER_THREADED_RUNNER_H_
#define MEGATRAIN_TESTS_SERVER_SCHEDULER_THREADED_RUNNER_H_

#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "server/worker/job_runner.h"

namespace megatrain {

class ThreadedRunner : public JobRunner {
 public:
  // A job has `steps` steps. Checkpoints, by job, outlive the runner as files do, and so does the
  // observer.
  ThreadedRunner(int64_t steps, std::map<std::string, int64_t>* checkpoints, RunObserver* observer)
      : steps_(steps), observer_(observer), checkpoints_(checkpoints) {}
  ~ThreadedRunner() override;

  absl::Status Start(RunRequest request) override;
  absl::Status Ask(const std::string& id, RunWish wish) override;

 private:
  struct Run {
    RunRequest request;
    bool active = true;
    bool pause = false, release = false, cancel = false, stop = false, save = false;
    bool resumed = false;  // StepsBegin is due
  };

  void Work(std::shared_ptr<Run> run);
  // Carries out what was asked; true: go on with the next step.
  bool Obey(Run* run, int64_t done, RunEnd::Kind* end);
  bool OtherActive(const RunRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t steps_;
  RunObserver* const observer_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, int64_t>* const checkpoints_ ABSL_PT_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Run>> runs_ ABSL_GUARDED_BY(mutex_);
  std::list<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_SCHEDULER_THREADED_RUNNER_H_

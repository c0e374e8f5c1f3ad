#include "tests/server/scheduler/threaded_runner.h"

#include <algorithm>
#include <utility>

namespace megatrain {
namespace {

constexpr int64_t kStepsBetweenCheckpoints = 10;

}  // namespace

ThreadedRunner::~ThreadedRunner() {
  std::list<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    for (auto& [id, run] : runs_) run->cancel = true;
    changed_.NotifyAll();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

bool ThreadedRunner::OtherActive(const RunRequest& request) const {
  for (const auto& [other, run] : runs_) {
    const std::vector<int>& its = run->request.devices;
    const bool here = std::find_first_of(its.begin(), its.end(), request.devices.begin(),
                                         request.devices.end()) != its.end();
    if (other != request.job_id && run->active && here) return true;
  }
  return false;
}

absl::Status ThreadedRunner::Start(RunRequest request) {
  MutexLock lock(&mutex_);
  if (runs_.count(request.job_id) == 1) return absl::AlreadyExistsError(request.job_id);
  if (OtherActive(request)) return absl::FailedPreconditionError("another job is active");
  auto run = std::make_shared<Run>();
  run->request = std::move(request);
  runs_[run->request.job_id] = run;
  threads_.emplace_back([this, run] { Work(run); });
  return absl::OkStatus();
}

absl::Status ThreadedRunner::Ask(const std::string& id, RunWish wish) {
  MutexLock lock(&mutex_);
  const auto found = runs_.find(id);
  if (found == runs_.end()) return absl::NotFoundError(id);
  Run& run = *found->second;
  switch (wish) {
    case RunWish::kPause:
      run.pause = true;
      break;
    case RunWish::kRelease:
      run.pause = run.release = true;
      break;
    case RunWish::kResume:
      if (OtherActive(run.request)) return absl::FailedPreconditionError("another job is active");
      run.pause = false;
      run.active = run.resumed = true;
      break;
    case RunWish::kCancel:
      run.cancel = true;
      break;
    case RunWish::kCheckpoint:
      run.save = true;
      break;
    case RunWish::kStop:
      run.stop = true;
      break;
  }
  changed_.NotifyAll();
  return absl::OkStatus();
}

bool ThreadedRunner::Obey(Run* run, int64_t done, RunEnd::Kind* end) {
  for (;;) {
    bool save = false, paused = false, resumed = false;
    {
      MutexLock lock(&mutex_);
      if (run->cancel || run->stop || run->release) {
        *end = run->cancel ? RunEnd::Kind::kCancelled
               : run->stop ? RunEnd::Kind::kStopped
                           : RunEnd::Kind::kReleased;
        if (!run->cancel && done > 0) (*checkpoints_)[run->request.job_id] = done;
        save = !run->cancel && done > 0;
      } else if (run->pause) {
        if (run->active) {
          run->active = false;
          paused = true;
        } else {
          changed_.Wait(&mutex_);
          continue;
        }
      } else {
        save = std::exchange(run->save, false) && done > 0;
        if (save) (*checkpoints_)[run->request.job_id] = done;
        resumed = std::exchange(run->resumed, false);
      }
    }
    if (save) observer_->Tell(run->request, CheckpointSaved{done, "", 0});
    if (*end != RunEnd::Kind::kFinished) return false;
    if (resumed) observer_->Tell(run->request, StepsBegin{done + 1, steps_});
    if (!paused) return true;
    observer_->Tell(run->request, TrainingPause{});
  }
}

void ThreadedRunner::Work(std::shared_ptr<Run> run) {
  RunEnd end;
  end.kind = RunEnd::Kind::kFinished;
  int64_t done = 0;
  {
    MutexLock lock(&mutex_);
    const auto checkpoint = checkpoints_->find(run->request.job_id);
    if (checkpoint != checkpoints_->end()) done = checkpoint->second;
    if (run->cancel) end.kind = RunEnd::Kind::kCancelled;
    if (run->stop) end.kind = RunEnd::Kind::kStopped;
  }
  if (end.kind == RunEnd::Kind::kFinished) {
    observer_->Tell(run->request, StepsBegin{done + 1, steps_});
    while (done < steps_ && Obey(run.get(), done, &end.kind)) {
      StepRecord record;
      record.step = ++done;
      record.step_seconds = 0.001;
      observer_->Tell(run->request, record);
      if (done % kStepsBetweenCheckpoints == 0) {
        {
          MutexLock lock(&mutex_);
          (*checkpoints_)[run->request.job_id] = done;
        }
        observer_->Tell(run->request, CheckpointSaved{done, "", 0});
      }
      std::this_thread::yield();
    }
  }
  {
    MutexLock lock(&mutex_);
    runs_.erase(run->request.job_id);
  }
  observer_->Tell(run->request, end);
}

}  // namespace megatrain

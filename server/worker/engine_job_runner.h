// EngineJobRunner is the JobRunner that runs jobs on the engine, in this process.
#ifndef MEGATRAIN_SERVER_WORKER_ENGINE_JOB_RUNNER_H_
#define MEGATRAIN_SERVER_WORKER_ENGINE_JOB_RUNNER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "server/files/open_files.h"
#include "server/worker/job_runner.h"
#include "server/worker/watchdog.h"

namespace megatrain {

struct EngineJobRunnerOptions {
  // Each is told of every event, in the order of this list. What the job's records keep of an event
  // (JobRecords) is written before, unless that fails. The observers must outlive the runner.
  std::vector<RunObserver*> observers = {};
  WatchdogOptions watchdog;  // for the watchdog of each job
  // Opens the files of a run. Called on the job's own thread as it begins. An error ends the run:
  // as kStopped after RunWish::kStop, else as kNotStarted if it is Unavailable, else as kFailed.
  OpenFiles files = FilesOfProcess();
  // Called on the watchdog's thread when the job hangs, and again only if the job advanced in
  // between. A process cannot end a thread that hangs in a device or a disk. So the function should
  // end the process, or have it ended; the next process then starts the job again. If the function
  // returns, the job stays active, and the runner's destructor waits for it. May be empty.
  std::function<void(const std::string& job_id, const std::string& why)> stalled;
  // Called on the job's thread when the device is lost to this process. The job has left the engine
  // by then. If the function returns, the job ends as kLost. May be empty.
  std::function<void(const std::string& job_id, const std::string& why)> device_lost;
};

// Each job has a thread and a watchdog, which begin with Start. Those of a job that has ended are
// destroyed by a later Start or the destructor.
class EngineJobRunner : public JobRunner {
 public:
  // `host` must outlive the runner.
  EngineJobRunner(EngineHost* host, EngineJobRunnerOptions options);
  ~EngineJobRunner() override;

  absl::Status Start(RunRequest request) override;
  absl::Status Ask(const std::string& job_id, RunWish wish) override;

 private:
  struct Run;

  void RunJob(Run& run);
  absl::StatusOr<TrainingOutcome> TrainOnFiles(Run& run, FileSystem* files);
  RunEnd Train(Run& run);
  // Takes an event from the engine to records and observers. Called on the run's thread, as the
  // next three.
  void Follow(Run& run, const RunEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);
  void Tell(const Run& run, const JobRunEvent& event) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Notes how the writing of one of the run's records ended.
  void NoteRecords(Run& run, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Notes that the run stands still. Returns why: what the engine says, or that its records found
  // no room.
  TrainingPause Park(Run& run, const TrainingPause& pause) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the run of a job that has not ended, or NotFound if there is none.
  absl::StatusOr<Run*> Find(const std::string& job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns FailedPrecondition if another run is active on one of the devices.
  absl::Status CheckFree(const std::vector<int>& devices) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  EngineHost* const host_;
  const EngineJobRunnerOptions options_;
  Mutex mutex_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  // A run that has ended stays until the next Start joins its thread.
  std::vector<std::unique_ptr<Run>> runs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_ENGINE_JOB_RUNNER_H_

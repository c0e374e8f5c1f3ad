// Runs jobs on the engine, as the scheduler says. Requests only note what is wanted and return at
// once; observers are told what comes of them.
//
// At most one job is active, that is prepares, trains or saves. A job that is paused in place keeps
// its host memory and its thread but not the device, so that another may be started beside it if
// the pool has room.
//
// The events of a job, in order:
//   TrainingActivity*  StepsBegin  (StepRecord | BeforeCheckpoint | CheckpointSaved |
//   CheckpointFailed)*  [TrainingPause  StepsBegin ...]  RunEnd
// RunMessage and TrainingActivity may come at any time before RunEnd; RunEnd comes exactly once,
// last.
//
// Thread safety: all methods may be called from any thread, observers' included.
#ifndef MEGATRAIN_SERVER_WORKER_JOB_RUNNER_H_
#define MEGATRAIN_SERVER_WORKER_JOB_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "engine/job/job_spec.h"
#include "engine/run_event.h"

namespace megatrain {

class JobRecords;

struct RunRequest {
  std::string job_id;
  JobSpec spec;  // paths absolute, checkpoint.directory filled in
  // Where the runner keeps step metrics and log lines before it tells observers; may be null.
  std::shared_ptr<JobRecords> records;
  int64_t uid = -1;  // the submitter's: with whose rights files are reached
};

// Why a run failed or paused by itself, for the job's reason. The status' message is for people.
enum class RunFailure {
  kNone,
  kInvalidInput,       // job, model, data or checkpoint are not what they must be
  kDoesNotFit,         // by the plan: also on an empty pool
  kPoolBusy,           // fits an empty pool; what paused jobs hold leaves too little
  kDiskFull,           // checkpoint, prepared data or output could not be written
  kNonFinite,          // loss, gradient or weight
  kCheckpointDamaged,  // every checkpoint there is
  kInternal,           // device, input/output errors, broken invariants
};
// Classifies the status of a TrainingPause or a RunEnd; kNone if it is OK.
RunFailure FailureOf(const absl::Status& status);

struct RunEnd {
  enum class Kind {
    kFinished,  // the last step is done and saved, the output written
    kReleased,  // Pause(release_host): saved (if a step was made), all memory given back
    // Stop: to be started again. Saved if a step was made, unless `status` says why that failed:
    // it then goes on from the checkpoint before.
    kStopped,
    kCancelled,  // nothing was saved; older checkpoints are untouched
    kFailed,
  };
  Kind kind = Kind::kFailed;
  absl::Status status;  // kFailed; kStopped
};

// The alternatives of RunEvent, and RunEnd, which is the runner's own.
template <class Event>
struct WithRunEnd;
template <class... Events>
struct WithRunEnd<std::variant<Events...>> {
  using type = std::variant<Events..., RunEnd>;
};
using JobRunEvent = WithRunEnd<RunEvent>::type;

class RunObserver {
 public:
  virtual ~RunObserver() = default;

  // Called on the job's own thread, for the events of every job: must not block long. Those of one
  // job come one after another; of two jobs (one paused in place) at the same time.
  virtual void Tell(const RunRequest& run, const JobRunEvent& event) = 0;
};

class JobRunner {
 public:
  // Ends all jobs as Cancel does and waits for them.
  virtual ~JobRunner() = default;

  // FailedPrecondition while another job is active, AlreadyExists if this one has not ended. What
  // is wrong with the job itself comes as RunEnd.
  virtual absl::Status Start(RunRequest request) = 0;

  // All below: NotFound if the job has not been started or has ended: its RunEnd was told or is
  // about to be. A request that comes too late to matter (the last step is done) is without effect:
  // RunEnd tells.

  // Within one step: frees the device; TrainingPause tells. With `release_host` the job is saved,
  // its host memory given back, and it ends as kReleased; if it cannot be saved it stays paused in
  // place, with the failure. Takes effect before the first step if the job still prepares; with
  // `release_host` preparing is abandoned at once. Of a job that is paused in place,
  // `release_host` gives the memory back too.
  virtual absl::Status Pause(const std::string& job_id, bool release_host) = 0;
  // Of a job paused in place, or about to be: takes the device again; StepsBegin tells.
  // FailedPrecondition while another job is active.
  virtual absl::Status Resume(const std::string& job_id) = 0;
  // Within one step, in preparing, paused or saving within seconds.
  virtual absl::Status Cancel(const std::string& job_id) = 0;
  // Saves after the step that runs; at once if paused. CheckpointSaved or CheckpointFailed tells.
  virtual absl::Status Checkpoint(const std::string& job_id) = 0;
  // Finishes the step, saves, ends as kStopped: for the process' own end.
  virtual absl::Status Stop(const std::string& job_id) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_JOB_RUNNER_H_

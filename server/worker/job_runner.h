// JobRunner runs jobs on the engine, as the scheduler says. Requests only note what is wanted and
// return at once. Observers are told of the events of the run.
//
// At most one job is active (prepares, trains or saves) on a device. A job that is paused in place
// keeps its host memory and its thread but not its devices, so that another job may be started
// there if the host pool has room. The paused job continues on the same devices.
//
// The events of a job come in this order:
// - StepsBegin is the first event beside RunMessage and TrainingActivity. A run that ends while it
//   prepares has none.
// - StepRecord, SampledAnswer, BeforeCheckpoint, CheckpointSaved and CheckpointFailed follow it.
// - TrainingPause is told before the run waits, and StepsBegin again before the next step begins.
// - RunMessage and TrainingActivity may come at any time before RunEnd.
// - RunEnd comes exactly once, as the last event.
//
// Thread safety: all methods may be called from any thread, also by observers within Tell. The
// destructor must not be called within Tell.
#ifndef MEGATRAIN_SERVER_WORKER_JOB_RUNNER_H_
#define MEGATRAIN_SERVER_WORKER_JOB_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engine/job/job_spec.h"
#include "engine/run_event.h"
#include "server/jobs/job.h"

namespace megatrain {

class JobRecords;

struct RunRequest {
  std::string job_id;
  JobSpec spec;  // paths absolute, checkpoint.directory filled in
  // The job's records, in which the runner writes step metrics and log lines before it tells
  // observers of them. Null: nothing is recorded.
  std::shared_ptr<JobRecords> records;
  int64_t uid = -1;                            // the submitter, with whose rights files are reached
  std::vector<std::string> allow_change = {};  // as TrainingOptions::allow_change
  std::vector<int> devices = {0};              // as TrainingOptions::devices, and not empty
};

struct RunEnd {
  enum class Kind {
    kFinished,  // the last step is done, or `early_reason` says why not; saved, the output written
    kReleased,  // RunWish::kRelease: saved (if a step was made), all memory given back
    // RunWish::kStop: the job is to be started again. It is saved if a step was made. If `status`
    // is an error the job is not saved, and goes on from the checkpoint before.
    kStopped,
    // The device is lost to this process (IsDeviceLost), or the job hangs in it, which the daemon
    // tells. The job is not saved, and only a new process can continue it.
    kLost,
    kCancelled,  // RunWish::kCancel: nothing was saved; older checkpoints are untouched
    // It could not begin, because of `status`, which is not the job's own: the account database
    // cannot be read, or JobRunner::Start has refused (its caller then makes this RunEnd). It is to
    // be started again soon.
    kNotStarted,
    kFailed,  // by the error in `status`
  };
  Kind kind = Kind::kFailed;
  // Why kFailed, kNotStarted or kLost, or kStopped without being saved; else OK.
  absl::Status status;
  std::string early_reason = "";  // kFinished: why training ended before its last step; else ""
};

// JobRunEvent has the alternatives of the engine's RunEvent, and RunEnd.
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

  // Called on the job's own thread for each event of every job. Must not block long, because the
  // job waits. Events of one job come one after another. Events of two jobs may come at the same
  // time. `run` and `event` are valid during the call.
  virtual void Tell(const RunRequest& run, const JobRunEvent& event) = 0;
};

// A request to a runner about a job that it has.
enum class RunWish {
  // Frees the devices within one step. Then TrainingPause is told. A job that still prepares is
  // paused before its first step.
  kPause,
  // Saves the job and gives its host memory back, also if the job is paused in place. The job ends
  // as kReleased. If it cannot be saved it is paused in place, and TrainingPause tells the failure.
  // If it still prepares, the preparation is abandoned at once.
  kRelease,
  // Gives the devices again to a job that is paused in place, or about to be. Then StepsBegin is
  // told, or TrainingPause with the error if the devices cannot be taken. If the job is paused in
  // place, Ask returns FailedPrecondition while another job is active on one of the devices.
  kResume,
  // Ends the job as kCancelled, without saving, once the operations that run have ended. If it
  // prepares, is paused or saves, it ends within seconds.
  kCancel,
  // Saves the job after the step that runs, or at once if it is paused between two steps. Then
  // CheckpointSaved or CheckpointFailed is told.
  kCheckpoint,
  // Saves the job as soon as the step under way allows (TrainingControl::Stop), and ends it as
  // kStopped. For the end of the process.
  kStop,
};

class JobRunner {
 public:
  // Ends all jobs as kCancel does and waits for them.
  virtual ~JobRunner() = default;

  // Starts the job on a thread of its own. Returns AlreadyExists if this job has been started and
  // has not ended, and FailedPrecondition while another job is active on one of its devices or
  // while the runner is being destroyed. Errors of the job itself come as RunEnd.
  virtual absl::Status Start(RunRequest request) = 0;

  // Asks for something to be done with the job. Returns NotFound if the job has not been started or
  // has ended (its RunEnd was told or is about to be), and FailedPrecondition as kResume says. A
  // wish that comes too late to matter (the last step is done) has no effect, and RunEnd tells how
  // the job ended.
  virtual absl::Status Ask(const std::string& job_id, RunWish wish) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_JOB_RUNNER_H_

// Runs jobs on the engine: what the scheduler drives. Requests only note what is wanted and return
// at once; what comes of them is told through the job's callbacks.
//
// At most one job is active, that is prepares, trains or saves. A job that is paused in place keeps
// its host memory and its thread but not the device, so that another may be started beside it if
// the pool has room.
//
// The calls a job sees, in order:
//   preparing*  running  (step | checkpoint | message)*  [paused  running ...]  ended
// `message` may come at any time before `ended`; `ended` comes exactly once, last.
//
// Thread safety: all methods may be called from any thread, callbacks included.
#ifndef MEGATRAIN_SERVER_WORKER_JOB_RUNNER_H_
#define MEGATRAIN_SERVER_WORKER_JOB_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "engine/base/file.h"
#include "engine/job/job_spec.h"
#include "engine/trace/step_record.h"

namespace megatrain {

class JobRecords;

struct RunRequest {
  std::string job_id;
  JobSpec spec;  // paths absolute, checkpoint.directory filled in
  // Where the runner keeps step metrics and log lines before it calls back; may be null.
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
  RunFailure failure = RunFailure::kNone;  // of status
  absl::Status status;                     // kFailed; kStopped
};

// Why a job stands still with its host memory kept.
struct RunPause {
  // kNone: asked for. Else the run paused itself: what could not be written is tried again by
  // Resume, and the run pauses again if it fails again.
  RunFailure failure = RunFailure::kNone;
  absl::Status status;
  // kDiskFull: Resume makes sense when this many bytes are free beneath `directory`.
  int64_t disk_bytes = 0;
  std::string directory;
};

// Called on the job's own thread: must not block long. Any may be empty.
struct RunCallbacks {
  // What is being done before the first step: "tokenising", "loading the model". `fraction` of it
  // is done, from 0 to 1; negative if unknown.
  std::function<void(const std::string& activity, double fraction)> preparing;
  // Steps begin: once prepared, and after every pause in place. A first step that is not the next
  // one after those seen before means that the job fell back to a checkpoint.
  std::function<void(int64_t first_step, int64_t total_steps)> running;
  std::function<void(const StepRecord& record)> step;
  std::function<void(const std::string& line)> message;  // a log line, may hold line ends
  // A verified checkpoint of `step` is on disk; writing it took `seconds`.
  std::function<void(int64_t step, const std::string& directory, double seconds)> checkpoint;
  // A checkpoint failed and training goes on with the one before.
  std::function<void(int64_t step, const absl::Status& status)> checkpoint_failed;
  // The device is free, host memory is kept; no step runs until Resume.
  std::function<void(const RunPause& pause)> paused;
  std::function<void(const RunEnd& end)> ended;
};

class JobRunner {
 public:
  // Ends all jobs as Cancel does and waits for them.
  virtual ~JobRunner() = default;

  // FailedPrecondition while another job is active, AlreadyExists if this one has not ended. What
  // is wrong with the job itself comes as RunEnd.
  virtual absl::Status Start(RunRequest request, RunCallbacks callbacks) = 0;

  // All below: NotFound if the job has not been started or has ended: its `ended` was called or is
  // about to be. A request that comes too late to matter (the last step is done) is without effect:
  // `ended` tells.

  // Within one step: frees the device; paused() is called. With `release_host` the job is saved,
  // its host memory given back, and it ends as kReleased; if it cannot be saved it stays paused in
  // place, with the failure. Takes effect before the first step if the job still prepares; with
  // `release_host` preparing is abandoned at once. Of a job that is paused in place,
  // `release_host` gives the memory back too.
  virtual absl::Status Pause(const std::string& job_id, bool release_host) = 0;
  // Of a job paused in place, or about to be: takes the device again; running() is called.
  // FailedPrecondition while another job is active.
  virtual absl::Status Resume(const std::string& job_id) = 0;
  // Within one step, in preparing, paused or saving within seconds.
  virtual absl::Status Cancel(const std::string& job_id) = 0;
  // Saves after the step that runs; at once if paused. checkpoint() or checkpoint_failed() tells.
  virtual absl::Status Checkpoint(const std::string& job_id) = 0;
  // Finishes the step, saves, ends as kStopped: for the process' own end.
  virtual absl::Status Stop(const std::string& job_id) = 0;

  // Writes a HF directory from a verified checkpoint, both of `files`, on a thread of its own, one
  // at a time;
  // `done` is called there.
  virtual void Export(const std::string& checkpoint, const std::string& directory,
                      std::shared_ptr<FileSystem> files,
                      std::function<void(const absl::Status& status)> done) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_JOB_RUNNER_H_

// JobManager carries out the requests of the RPC services: to submit jobs, to look at them and to
// control them. It checks who asks and whether the job's state allows the request, has the change
// stored, and returns. The scheduler then makes runs follow the change, and the job shows how far
// that is. To a caller who is no administrator, a job of another user is NotFound, as if it did not
// exist. Administrators see all jobs.
//
// Errors carry a reason (error_reason.h), except some of planning, and of reading files and
// accounts:
// - NotFound: JOB_NOT_FOUND, CHECKPOINT_NOT_FOUND.
// - InvalidArgument: INVALID_FIELD, INVALID_JOB_FILE.
// - FailedPrecondition: ILLEGAL_TRANSITION, OUTPUT_EXISTS, EXCEEDS_USER_LIMIT (user_limit_check.h),
//   DOES_NOT_FIT (the message is the plan's table).
// - ResourceExhausted: LIMIT_REACHED (user_limit_check.h; Export), DISK_FULL of the store.
// - AlreadyExists: REQUEST_ID_REUSED.
// - PermissionDenied: NOT_PERMITTED.
// - Unavailable: STARTING, STOPPING.
// - DataLoss: CORRUPT_DATA of the store.
// - Any code: INTERNAL_ERROR of the store.
// After an error of Pause, Resume, Cancel, Checkpoint or Delete nothing has changed.
//
// Thread safety: all methods may be called from any thread. Get, List and Watch wait neither for
// the disk nor for the engine. Create, Plan, ListCheckpoints and Export read files. Create, Pause,
// Resume, Cancel and Delete wait for the store.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_MANAGER_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_MANAGER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "server/files/open_files.h"
#include "server/identity/caller.h"
#include "server/jobs/job.h"
#include "server/jobs/user_limits.h"
#include "server/manager/job_disk.h"
#include "server/manager/job_ledger.h"
#include "server/manager/job_table.h"

namespace megatrain {

struct CreateJobOptions {
  JobFile file;
  // The caller's own name for the request, at most 64 letters, digits and characters of "-_.". A
  // repeated request with the same one adds no second job. "" = each call adds a job.
  std::string request_id;
  int priority = 0;  // kPriorityMin to kPriorityMax; above 0 only for administrators
  // Sections of the job file, in any order; see Job::allow_change.
  std::vector<std::string> allow_change = {};
  bool validate_only = false;  // check everything, and add nothing
};

struct ListJobsOptions {
  // Returns true for jobs to list. Called with a lock held: it must not call the manager. Empty:
  // all.
  std::function<bool(const Job& job)> filter;
  bool newest_first = true;
  int page_size = 50;        // the most jobs on a page; > 0
  int64_t after_number = 0;  // `next` of the page before; 0 = the first page
};

// A page begins after the number of a job, and numbers never change. So no job is on two pages, and
// a job that is there, and passes the filter, from the first page to the last is on one of them.
struct JobPage {
  std::vector<JobPtr> jobs;
  int64_t next = 0;  // 0 = this was the last page
};

struct JobCheckpoint {
  int64_t step = 0;
  std::string directory;
  int64_t bytes = 0;   // of the files in it, without those in directories beneath it
  absl::Time changed;  // when its directory was last changed
  // The loss on the evaluation data, if it is the lowest of the job's checkpoints so far.
  std::optional<double> best_eval_loss;
};

struct JobPlan {
  PlanReport report;
  int jobs_ahead = 0;  // all users' active jobs, and queued ones of priority 0 and above
  // The error with which Create would refuse the job because of its user's limits. OK if there is
  // none, or if the job does not fit.
  absl::Status limit_refusal;
};

class JobManager {
 public:
  struct Options {
    // Returns the plan of a job on this machine's whole pool, whatever is free now. May read
    // through `files`. Called on the threads of Create and Plan, by several at once. Not empty.
    std::function<absl::StatusOr<PlanReport>(const JobSpec& spec, FileSystem* files)> plan;
    // Opens the files of a caller, or those of a job.
    OpenFiles files = FilesOfProcess();
    HostDevices devices = {};  // of this machine, for limits of devices
    // Read at each Create and Plan. Null: there are no limits. Must outlive the manager.
    const SharedUserLimits* limits = nullptr;
    // The bytes that jobs hold, for limits of disk_bytes. Null: disk_bytes is not checked. Must
    // outlive the manager.
    const JobDisk* disk = nullptr;
    // Does what JobRunner::Ask does for kCheckpoint. Returns Unavailable (STARTING) before there is
    // a runner. May be empty if Checkpoint is not called.
    std::function<absl::Status(const std::string& id)> checkpoint = {};
    // Does what ExportQueue::Add does. Returns Unavailable (STARTING) while jobs cannot run yet,
    // and does not call `done` then. May be empty if Export is not called.
    std::function<absl::Status(const std::string& checkpoint, const std::string& directory,
                               std::shared_ptr<FileSystem> files,
                               std::function<void(const absl::Status& status)> done)>
        write_export = {};
  };

  // `ledger` must outlive the manager.
  JobManager(JobLedger* ledger, Options options);

  // Adds a job and returns it. A second call of the same user with the same request_id, file and
  // priority returns the job of the first call, whatever became of it, until that job is deleted. A
  // second call with another file or priority, or with a section of allow_change that the first job
  // may not change, returns AlreadyExists (REQUEST_ID_REUSED). With validate_only everything is
  // checked, also for a request that was made before, and nothing is added. The job is then
  // returned as it would be, without an id, a number or times. Returns FailedPrecondition
  // (DOES_NOT_FIT) if the job does not fit on this machine, even alone, PermissionDenied
  // (NOT_PERMITTED) if the daemon may not act for the caller or the account is gone, and the errors
  // of CheckRequestId, CheckPriority, WithSections, ParseJob, CheckPaths, PlanError,
  // CheckUserLimits and the store.
  absl::StatusOr<JobPtr> Create(const Caller& caller, const CreateJobOptions& options);
  // Plans a job and adds nothing. If the job does not fit, the report says so, and that is no
  // error. The job's paths are not checked as Create checks them. Returns the errors of ParseJob
  // and PlanError, and PermissionDenied as Create does.
  absl::StatusOr<JobPlan> Plan(const Caller& caller, const JobFile& file);

  // Returns the job as it is now.
  absl::StatusOr<JobPtr> Get(const Caller& caller, const std::string& id) const;
  // Returns a page of the jobs that the caller may see. Returns InvalidArgument (INVALID_FIELD)
  // unless page_size > 0.
  absl::StatusOr<JobPage> List(const Caller& caller, const ListJobsOptions& options) const;

  // Pauses a RUNNING job. With `release_host` its host memory is given back too. A PAUSING or
  // PAUSED job stays so, but a pause by the daemon becomes the user's, which the daemon does not
  // end, and `release_host` gives back memory that is kept. Returns FailedPrecondition
  // (ILLEGAL_TRANSITION) in other states.
  absl::StatusOr<JobPtr> Pause(const Caller& caller, const std::string& id, bool release_host);
  // Puts a PAUSED job in the queue, and withdraws the pause of a PAUSING one. A QUEUED, PREPARING
  // or RUNNING job stays so. Adds `allow_change` to the sections that the job may change, unless
  // the job is PREPARING or RUNNING. Returns FailedPrecondition (ILLEGAL_TRANSITION) if the job has
  // ended, is being cancelled, or is PAUSING to give its memory back. Returns InvalidArgument
  // (INVALID_FIELD) for a section that no job may change.
  absl::StatusOr<JobPtr> Resume(const Caller& caller, const std::string& id,
                                const std::vector<std::string>& allow_change = {});
  // Cancels a job. A QUEUED one is CANCELLED at once. Another one is CANCELLING until its run has
  // ended. A CANCELLING or CANCELLED job stays so. Returns FailedPrecondition (ILLEGAL_TRANSITION)
  // if the job has succeeded or failed.
  absl::StatusOr<JobPtr> Cancel(const Caller& caller, const std::string& id);
  // Asks a RUNNING job for a checkpoint after its step, and returns the job as it is now.
  // Job::checkpoint_step grows when the checkpoint is on disk. Returns FailedPrecondition
  // (ILLEGAL_TRANSITION) in other states, and the errors of Options::checkpoint except NotFound.
  absl::StatusOr<JobPtr> Checkpoint(const Caller& caller, const std::string& id);

  // Deletes a job that has ended, so that callers do not find it any more. What the daemon keeps
  // for the job (events, metrics, log, checkpoints in its own directory) is removed soon after, by
  // JobRemover. Directories that the job's file names are left alone. Returns FailedPrecondition
  // (ILLEGAL_TRANSITION) if the job has not ended.
  absl::Status Delete(const Caller& caller, const std::string& id);

  // Returns the job's checkpoints, the newest first; if Job::spec is null, only those in the
  // directory that the daemon made for the job. Their directories are read with the rights of the
  // job's submitter. Returns PermissionDenied (NOT_PERMITTED) if the daemon may not act for the
  // submitter or the account is gone, and the errors of FileSystem::ListDirectory except NotFound.
  absl::StatusOr<std::vector<JobCheckpoint>> ListCheckpoints(const Caller& caller,
                                                             const std::string& id) const;
  // Begins to write a Hugging Face directory from the job's checkpoint of `step` (0: the newest),
  // and returns that checkpoint. `done`, which must not be empty, is called once, with OK when the
  // directory is written or with the error. It is called from another thread or, while the daemon
  // stops, from this one. It is not called if Export returns an error. The directory is written
  // with the rights of the job's submitter, whoever asks. Errors:
  // - InvalidArgument (INVALID_FIELD): `directory` is not absolute, or its parent cannot hold it.
  // - PermissionDenied (NOT_PERMITTED): the submitter may not write there.
  // - FailedPrecondition (OUTPUT_EXISTS): `directory` is there and is no empty directory, or cannot
  //   be listed.
  // - NotFound (CHECKPOINT_NOT_FOUND): there is no such checkpoint.
  // - ResourceExhausted (LIMIT_REACHED): too many exports of this caller wait or are being written.
  //   An export is counted until Options::write_export has destroyed the function that it was
  //   given.
  // - The errors of ListCheckpoints and of Options::write_export.
  absl::StatusOr<JobCheckpoint> Export(const Caller& caller, const std::string& id, int64_t step,
                                       const std::string& directory,
                                       std::function<void(const absl::Status& status)> done);

  // Returns a watch of the job and its events from `first_sequence` on (0 or 1: all that are kept;
  // JobWatch::Update tells which were missed). Returns InvalidArgument (INVALID_FIELD) if
  // `first_sequence` is negative or more than one past the last event. `on_ready` is called, from
  // any thread and with the ledger's lock held, when there is something to poll. Between two polls
  // it is called at most once for the job and once for events. It must return soon, and use neither
  // the watch nor the manager. The ledger must outlive the watch.
  absl::StatusOr<std::unique_ptr<JobWatch>> Watch(const Caller& caller, const std::string& id,
                                                  int64_t first_sequence,
                                                  std::function<void()> on_ready);

 private:
  // Sets the fields of a job that follow from its file and its plan.
  void SetPlanned(const PlanReport& plan, JobSpec spec, Job* job) const;
  absl::Status CheckLimits(const Job& job) const;
  absl::StatusOr<std::shared_ptr<FileSystem>> FilesOf(int64_t uid, const std::string& id) const;
  absl::StatusOr<std::vector<JobCheckpoint>> CheckpointsOf(const Job& job, FileSystem* files) const;
  // Checks the owner, then changes the job as `decide` says: see JobLedger::Change.
  absl::StatusOr<JobPtr> Control(const Caller& caller, const std::string& id,
                                 const JobLedger::Decide& decide);

  // Counts an export of the user while the result lives. Returns Export's LIMIT_REACHED.
  absl::StatusOr<std::shared_ptr<const void>> CountExport(int64_t uid);

  JobLedger* const ledger_;
  const Options options_;
  Mutex mutex_;
  // By user.
  std::map<int64_t, std::vector<std::weak_ptr<const void>>> exports_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_MANAGER_H_

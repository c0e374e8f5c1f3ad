// JobManager carries out the requests of the RPC services: to submit jobs, to look at them and to
// control them. It checks who asks and whether the job's state allows it, has the change stored,
// and returns. The effect is the scheduler's work and is seen in the job. A job of another user is
// NotFound, as if it did not exist; administrators see all.
//
// Errors carry a reason (error_reason.h), except some of reading files and accounts:
// - NotFound: JOB_NOT_FOUND, CHECKPOINT_NOT_FOUND.
// - InvalidArgument: INVALID_FIELD, INVALID_JOB_FILE.
// - FailedPrecondition: ILLEGAL_TRANSITION, OUTPUT_EXISTS, EXCEEDS_USER_LIMIT (admission.h),
//   DOES_NOT_FIT (the message is the plan's table).
// - ResourceExhausted: LIMIT_REACHED (admission.h), DISK_FULL of the store.
// - AlreadyExists: REQUEST_ID_REUSED.
// - PermissionDenied: NOT_PERMITTED.
// - Unavailable: STARTING, STOPPING.
// - DataLoss: CORRUPT_DATA of the store.
// - Any code: INTERNAL_ERROR of the store.
// An error of a control call means that nothing has changed.
//
// Thread safety: all methods may be called from any thread. Get, List and Watch wait neither for
// the disk nor for the engine. Create, Plan, ListCheckpoints and Export read files. Changes wait
// for the store.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_MANAGER_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_MANAGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  std::string request_id;  // unique for each job of a user; "" = not protected against repetition
  int priority = 0;        // above 0 only for administrators
  // Sections of the job file; see Job::allow_change. In any order.
  std::vector<std::string> allow_change = {};
  bool validate_only = false;
};

struct ListJobsOptions {
  std::function<bool(const Job& job)> filter;  // empty: all
  bool newest_first = true;
  int page_size = 50;        // > 0
  int64_t after_number = 0;  // the page before's `next`; 0 = the first page
};

// Keys of pages are jobs' numbers, which never change: no job is on two pages, and a job that was
// there from the first page to the last is on one of them.
struct JobPage {
  std::vector<JobPtr> jobs;
  int64_t next = 0;  // 0 = this was the last page
};

struct JobCheckpoint {
  int64_t step = 0;
  std::string directory;
  int64_t bytes = 0;  // of all its files
  absl::Time created;
  std::optional<double> best_eval_loss;  // if it is the lowest of the job so far
};

struct JobPlan {
  PlanReport report;
  int jobs_ahead = 0;  // active jobs, and queued ones of priority 0 and above
  // The error with which the caller's limits make Create refuse a job that fits, or OK.
  absl::Status limit_refusal;
};

class JobManager {
 public:
  struct Options {
    // Returns the plan on this machine's whole pool, whatever is free now. May read files. Called
    // on the caller's thread, by several at once.
    std::function<absl::StatusOr<PlanReport>(const JobSpec& spec, FileSystem* files)> plan;
    // Opens the files of a caller, or those of a job.
    OpenFiles files = FilesOfProcess();
    HostDevices devices = {};
    // Read at each call that may add a job. Null: none. Must outlive the manager.
    const SharedUserLimits* limits = nullptr;
    const JobDisk* disk = nullptr;  // for their disk_bytes; must outlive the manager
    // Does what JobRunner::Ask does for kCheckpoint. Returns Unavailable (STARTING) before there is
    // a runner.
    std::function<absl::Status(const std::string& id)> checkpoint = {};
    // Does what ExportQueue::Add does. Returns Unavailable (STARTING) while jobs cannot run yet;
    // `done` is not called then.
    std::function<absl::Status(const std::string& checkpoint, const std::string& directory,
                               std::shared_ptr<FileSystem> files,
                               std::function<void(const absl::Status& status)> done)>
        write_export = {};
  };

  // `ledger` must outlive the manager.
  JobManager(JobLedger* ledger, Options options);

  // Adds a job and returns it. A second call with the same request_id, file and priority returns
  // the job of the first, whatever became of it, until it is deleted. With another file or
  // priority, or with a section of allow_change that the job may not change, it is
  // REQUEST_ID_REUSED. With validate_only everything is checked, nothing is added, and the job is
  // returned as it would be, without an id.
  absl::StatusOr<JobPtr> Create(const Caller& caller, const CreateJobOptions& options);
  // Plans a job and adds nothing. It is no error if the job does not fit. Its paths are not checked
  // as Create checks them.
  absl::StatusOr<JobPlan> Plan(const Caller& caller, const JobFile& file);

  // Returns the job as it is now.
  absl::StatusOr<JobPtr> Get(const Caller& caller, const std::string& id) const;
  // Returns a page of the jobs that the caller may see. Returns INVALID_FIELD unless page_size > 0.
  absl::StatusOr<JobPage> List(const Caller& caller, const ListJobsOptions& options) const;

  // Pauses a RUNNING job. PAUSING and PAUSED stay as they are, with two changes: a pause by the
  // daemon becomes the user's, and `release_host` gives the memory back. Returns ILLEGAL_TRANSITION
  // in other states.
  absl::StatusOr<JobPtr> Pause(const Caller& caller, const std::string& id, bool release_host);
  // Puts a PAUSED job in the queue, and withdraws the pause of a PAUSING one. QUEUED, PREPARING and
  // RUNNING stay as they are. Adds `allow_change` to the sections that the job may change, unless
  // it is PREPARING or RUNNING. Returns ILLEGAL_TRANSITION if the job has ended or is being
  // cancelled, or is PAUSING to give its memory back. Returns INVALID_FIELD for a section that no
  // job may change.
  absl::StatusOr<JobPtr> Resume(const Caller& caller, const std::string& id,
                                const std::vector<std::string>& allow_change = {});
  // Cancels a job. CANCELLING and CANCELLED stay as they are. Returns ILLEGAL_TRANSITION if it has
  // succeeded or failed.
  absl::StatusOr<JobPtr> Cancel(const Caller& caller, const std::string& id);
  // Asks a RUNNING job for a checkpoint after its step, and returns the job as it is now.
  // Job::checkpoint_step grows when it is on disk. Returns ILLEGAL_TRANSITION in other states.
  absl::StatusOr<JobPtr> Checkpoint(const Caller& caller, const std::string& id);

  // Deletes a job that has ended. Returns ILLEGAL_TRANSITION if it has not. Callers do not find it
  // any more. What the daemon keeps for it (events, metrics, log, checkpoints in its own directory)
  // is removed soon after. Directories that its file names are left alone.
  absl::Status Delete(const Caller& caller, const std::string& id);

  // Returns the job's checkpoints, the newest first; none if Job::spec is null. Their directories
  // are read with the rights of the job's submitter.
  absl::StatusOr<std::vector<JobCheckpoint>> ListCheckpoints(const Caller& caller,
                                                             const std::string& id) const;
  // Begins to write a Hugging Face directory from the job's checkpoint of `step` (0: the newest),
  // and returns that checkpoint. `done` is called once when the directory is written or has failed,
  // from another thread or, while the daemon stops, from this one. It is not called if Export
  // returns an error. `directory` is absolute, and empty or not there (OUTPUT_EXISTS). It is
  // written with the rights of the job's submitter, whoever asks.
  absl::StatusOr<JobCheckpoint> Export(const Caller& caller, const std::string& id, int64_t step,
                                       const std::string& directory,
                                       std::function<void(const absl::Status& status)> done);

  // Returns a watch of the job and its events from `first_sequence` on (0 or 1: all). Returns
  // InvalidArgument (INVALID_FIELD) if that is negative or more than one past the last. `on_ready`
  // is called, from any thread, when there is something to poll. Between two polls it is called at
  // most once for the job and once for events. It must return soon, and not use the watch. The
  // ledger must outlive the watch.
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

  JobLedger* const ledger_;
  const Options options_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_MANAGER_H_

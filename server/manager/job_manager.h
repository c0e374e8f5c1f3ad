// What the RPC services call: submit, look, control. Checks who asks and whether the job's state
// allows it, has the change stored and returns; the effect is the scheduler's work and is seen in
// the job. A job of another user is NotFound, as if it did not exist; administrators see all.
//
// Errors carry a reason (error_reason.h): JOB_NOT_FOUND, ILLEGAL_TRANSITION (FailedPrecondition),
// INVALID_FIELD, INVALID_JOB_FILE (InvalidArgument), DOES_NOT_FIT (FailedPrecondition, the message
// is the plan's table), EXCEEDS_USER_LIMIT, LIMIT_REACHED (admission.h), REQUEST_ID_REUSED
// (AlreadyExists), NOT_PERMITTED (PermissionDenied), CHECKPOINT_NOT_FOUND, OUTPUT_EXISTS
// (FailedPrecondition), STARTING (Unavailable); of the store DISK_FULL (ResourceExhausted),
// CORRUPT_DATA (DataLoss). An error of a control call means that nothing has changed.
//
// Thread safety: all methods may be called from any thread. Reads never wait for the disk, nor for
// the engine; changes wait for the store.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_MANAGER_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_MANAGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/files/open_files.h"
#include "server/jobs/job.h"
#include "server/jobs/user_limits.h"
#include "server/manager/job_disk.h"
#include "server/manager/job_ledger.h"
#include "server/manager/job_watch.h"

namespace megatrain {

struct CreateJobOptions {
  JobFile file;
  std::string request_id;  // unique for each job of a user; "" = not protected against repetition
  int priority = 0;        // above 0 only for administrators
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
};

struct JobPlan {
  PlanReport report;
  int jobs_ahead = 0;  // active jobs, and queued ones of priority 0 and above
  // Why Create would refuse a job that fits, as it does: the caller's limits. OK: it would not.
  absl::Status user_limits;
};

class JobManager {
 public:
  struct Options {
    // The plan on this machine's whole pool, whatever is free now. May read files; called on the
    // caller's thread, by several at once.
    std::function<absl::StatusOr<PlanReport>(const JobSpec& spec, FileSystem* files)> plan;
    // Through which a caller's paths, and the files of a job, are reached.
    OpenFiles files = FilesOfProcess();
    UserLimits limits = {};
    const JobDisk* disk = nullptr;  // for limits.disk_bytes; must outlive the manager
    // As JobRunner::Checkpoint. STARTING while there is no runner yet.
    std::function<absl::Status(const std::string& id)> checkpoint = {};
    // As ExportQueue::Add. STARTING while jobs cannot run yet; `done` is not called then.
    std::function<absl::Status(const std::string& checkpoint, const std::string& directory,
                               std::shared_ptr<FileSystem> files,
                               std::function<void(const absl::Status& status)> done)>
        write_export = {};
  };

  // `ledger` must outlive the manager.
  JobManager(JobLedger* ledger, Options options);

  // Those of Options are replaced, for what is asked from now on.
  void SetLimits(const UserLimits& limits);

  // The same request_id and file give the job that the first call made, whatever became of it.
  // validate_only: everything is checked, and the job as it would be returned, without an id.
  absl::StatusOr<JobPtr> Create(const Caller& caller, const CreateJobOptions& options);
  absl::StatusOr<JobPlan> Plan(const Caller& caller, const JobFile& file);

  absl::StatusOr<JobPtr> Get(const Caller& caller, const std::string& id) const;
  absl::StatusOr<JobPage> List(const Caller& caller, const ListJobsOptions& options) const;

  // Of a RUNNING job. PAUSING and PAUSED stay as they are, but for what is added: a pause by the
  // daemon becomes the user's, and `release_host` gives the memory back.
  absl::StatusOr<JobPtr> Pause(const Caller& caller, const std::string& id, bool release_host);
  // A PAUSED job goes to the queue; a pause that is on its way is withdrawn, unless the memory is
  // already being saved for release. QUEUED, PREPARING and RUNNING stay as they are.
  absl::StatusOr<JobPtr> Resume(const Caller& caller, const std::string& id);
  // CANCELLING and CANCELLED stay as they are.
  absl::StatusOr<JobPtr> Cancel(const Caller& caller, const std::string& id);
  // Asks a RUNNING job for a checkpoint after its step; checkpoint_step tells when it is on disk.
  absl::StatusOr<JobPtr> Checkpoint(const Caller& caller, const std::string& id);

  // Of a job that has ended: it is not there any more, and what the daemon keeps for it (events,
  // metrics, log, checkpoints in its own directory) is removed soon after. Directories that its
  // file names are left alone.
  absl::Status Delete(const Caller& caller, const std::string& id);

  // The newest first.
  absl::StatusOr<std::vector<JobCheckpoint>> ListCheckpoints(const Caller& caller,
                                                             const std::string& id) const;
  // Writes a HF directory from the job's checkpoint of `step` (0: the newest). Returns the one
  // taken; `done` is called later, from another thread. `directory` is absolute, and empty or not
  // there (OUTPUT_EXISTS). It is written with the rights of the job's submitter, whoever asks.
  absl::StatusOr<JobCheckpoint> Export(const Caller& caller, const std::string& id, int64_t step,
                                       const std::string& directory,
                                       std::function<void(const absl::Status& status)> done);

  // Events from `first_sequence` on (1: all). InvalidArgument if that is more than one past the
  // last. `on_ready` is called, from any thread and at most once between two polls, when there is
  // something to poll; it must return soon, and not use the watch. The watch must not outlive the
  // ledger.
  absl::StatusOr<std::unique_ptr<JobWatch>> Watch(const Caller& caller, const std::string& id,
                                                  int64_t first_sequence,
                                                  std::function<void()> on_ready);

  // How busy the node is: for every caller.
  JobCounts Counts() const;

 private:
  // What follows for a job from its file and its plan.
  void SetPlanned(const PlanReport& plan, JobSpec spec, Job* job) const;
  absl::StatusOr<JobPtr> Visible(const Caller& caller, const std::string& id) const;
  absl::StatusOr<std::shared_ptr<FileSystem>> FilesOf(int64_t uid, const std::string& id) const;
  absl::StatusOr<std::vector<JobCheckpoint>> CheckpointsOf(const Job& job, FileSystem* files) const;
  // Checks the owner, then asks `decide` for a change, as JobLedger::Change does.
  absl::StatusOr<JobPtr> Control(const Caller& caller, const std::string& id,
                                 const JobLedger::Decide& decide);

  UserLimits limits() const;

  JobLedger* const ledger_;
  const Options options_;
  mutable Mutex limits_mutex_;
  UserLimits limits_ ABSL_GUARDED_BY(limits_mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_MANAGER_H_

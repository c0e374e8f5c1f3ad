// JobLedger adds, changes and deletes jobs. No other code does. For every change of state it checks
// the transition table (job_state_machine.h). It writes each change to the store, and only then
// shows it in table() and calls the listeners.
//
// Errors of the store carry a reason: DISK_FULL with ResourceExhausted, CORRUPT_DATA with DataLoss,
// and INTERNAL_ERROR with any other code.
//
// Thread safety: all methods may be called from any thread. Add, Change, Delete and RemoveRow are
// carried out one at a time and wait for the disk. SetProgress, SetQueuePlaces, Deleted,
// AddListener and RemoveListener wait for one of those that is under way. Reads of table() do not.
// Invariants: table() never shows a state or an event that the store does not hold. A job's
// progress and place in the queue may be newer in the table.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_LEDGER_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_LEDGER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "server/jobs/job.h"
#include "server/manager/job_table.h"
#include "server/store/job_store.h"

namespace megatrain {

class JobLedger {
 public:
  // Returns how `job` changes, or nullopt if it does not change, or an error that Change returns.
  // It is called with a lock held, so it must not call the ledger. It may read the ledger's table.
  using Decide = std::function<absl::StatusOr<std::optional<JobChange>>(const Job& job)>;

  struct Options {
    std::string state_directory;  // absolute
    // Returns the last step of a job by its records (JobRecordsDirectory::LastStep), which are
    // written more often than the store. Called by Open only. The step decides whether the job got
    // further before the process died. May be empty.
    std::function<int64_t(const std::string& id)> reached_step;
    std::function<absl::Time()> now = absl::Now;  // the clock; not empty
  };

  // Reads the store, and changes jobs that a dead process left as ChangeAfterRestart
  // (restart_rule.h) says, with an event for each. Returns the store's errors; those of reading
  // have no reason. REQUIRES: `store` is not null.
  static absl::StatusOr<std::unique_ptr<JobLedger>> Open(std::unique_ptr<JobStore> store,
                                                         Options options);

  // Returns a random id that no job of table() has, for a job that is about to be added.
  std::string NewId() const;

  // Adds `job` as QUEUED, fills in its number, version, times and reason, and returns it. `text` is
  // the reason in words. If the job's request_id is not empty and its user has a job of that
  // request_id already, returns the one that is there and adds nothing. `admit`, if it is given, is
  // called before the job is added, with a lock held as for Decide, so that two jobs that are added
  // at the same time do not both take the last place. Returns the error of `admit`, and the store's
  // errors. After an error nothing was added. REQUIRES: job.id is from NewId; job.file is not null.
  absl::StatusOr<JobPtr> Add(Job job, const std::string& text,
                             const std::function<absl::Status()>& admit = {});

  // Changes a job as `decide` says, and returns it as it is then. Returns NotFound (JOB_NOT_FOUND)
  // if there is no such job, FailedPrecondition (ILLEGAL_TRANSITION) for an illegal transition, and
  // errors of `decide` and of the store. On an error nothing has changed.
  absl::StatusOr<JobPtr> Change(const std::string& id, const Decide& decide);

  // Deletes a job that has ended, so that readers do not find it any more, also after a restart.
  // Its files are left alone, and its row in the store stays until RemoveRow. `check`, which must
  // not be empty, is called first, with a lock held as for Decide. Returns NotFound (JOB_NOT_FOUND)
  // if there is no such job, FailedPrecondition (ILLEGAL_TRANSITION) if it has not ended or if
  // another job that has not ended has its checkpoints with this one (Job::checkpoints_with), and
  // the errors of `check` and of the store. On an error nothing has changed.
  absl::Status Delete(const std::string& id,
                      const std::function<absl::Status(const Job& job)>& check);
  // Returns the deleted jobs whose rows are not removed yet, also those that earlier processes
  // deleted.
  std::vector<JobPtr> Deleted() const;
  // Removes the row of a deleted job whose files are removed, and calls the listeners, because
  // there is more room on the disk. Succeeds if there is no such row. Returns the store's errors.
  absl::Status RemoveRow(const std::string& id);

  // Sets the job's last step, its record and the moving average `step_seconds` of its steps.
  // Readers see them at once. The number of the step is stored with the job's next change. Does
  // nothing if there is no such job.
  void SetProgress(const std::string& id, const StepRecord& record, double step_seconds);
  // Sets the places of jobs, by id. Ids of jobs that are not QUEUED are ignored. Places are not
  // stored.
  void SetQueuePlaces(const std::map<std::string, QueuePlace>& places);

  // Returns the table of all jobs that are not deleted. It lives as long as the ledger. REQUIRES:
  // callers only read it and watch jobs.
  JobTable& table() { return table_; }
  const JobTable& table() const { return table_; }
  // Returns how many writes to the store have failed in this process.
  int64_t store_errors() const { return store_errors_; }
  // Returns the time now, to the microsecond, as it is stored.
  absl::Time Now() const;
  const std::string& state_directory() const { return options_.state_directory; }

  // Calls `listener` after each stored change, on the thread that made it and with a lock held. The
  // listener must return soon, and call nothing of the ledger but its table. Each `owner` has one
  // listener; a second takes the place of the first. RemoveListener waits for a call that is under
  // way, and no call follows. REQUIRES: the caller of RemoveListener holds no lock that the
  // listener takes.
  void AddListener(const void* owner, std::function<void()> listener);
  void RemoveListener(const void* owner);

 private:
  JobLedger(std::unique_ptr<JobStore> store, Options options);
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  absl::StatusOr<JobPtr> Apply(const Job& job, const JobChange& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  void Announce(Job job, std::vector<JobEvent> events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  // Counts an error of the store, and adds the reason that callers see.
  absl::Status NoteStored(absl::Status status);
  void TellListeners() ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);

  const Options options_;
  const std::unique_ptr<JobStore> store_;
  // Held from the look at the transition table to the announcement. All writes to table_ are under
  // it, so that none is lost between another's read and write.
  mutable Mutex change_mutex_;
  JobTable table_;
  std::atomic<int64_t> store_errors_{0};
  int64_t last_number_ ABSL_GUARDED_BY(change_mutex_) = 0;
  std::map<std::string, JobPtr> deleted_ ABSL_GUARDED_BY(change_mutex_);
  std::map<const void*, std::function<void()>> listeners_ ABSL_GUARDED_BY(change_mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_LEDGER_H_

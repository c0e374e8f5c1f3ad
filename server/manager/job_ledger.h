// JobLedger adds and changes jobs; no other code does. For every change it checks the transition
// table, writes the store, and only then announces it.
//
// Thread safety: all methods may be called from any thread. Changes are made one at a time and wait
// for the disk. Deleted, AddListener and RemoveListener wait for a change that is under way; reads
// of table() do not.
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
  // Returns how `job` changes; nullopt: not at all. Called with a lock held: it must not call the
  // ledger, but may read its table.
  using Decide = std::function<absl::StatusOr<std::optional<JobChange>>(const Job& job)>;

  struct Options {
    std::string state_directory;  // absolute
    // Returns the last step of a job by its records, which are written more often than the store.
    // It decides whether a job got further before a death. May be empty.
    std::function<int64_t(const std::string& id)> reached_step;
    std::function<absl::Time()> now = absl::Now;
  };

  // Reads the store, and changes jobs that a dead process left as restart_rule.h says, with an
  // event for each. Returns the store's errors.
  static absl::StatusOr<std::unique_ptr<JobLedger>> Open(std::unique_ptr<JobStore> store,
                                                         Options options);

  // Returns a random id that no job of table() has, for a job that is about to be added.
  std::string NewId() const;

  // Adds a QUEUED job, fills in its number, times and reason, and returns it. `text` is the reason
  // in words. If its user has a job of its request_id already, returns that one and adds nothing.
  // `admit`, if it is given, is called first, with a lock held as for Decide, so that two jobs that
  // are added at the same time do not both take the last place. Its error is returned and nothing
  // is added. Other errors are the store's. REQUIRES: job.id is one of NewId; job.file is not null.
  absl::StatusOr<JobPtr> Add(Job job, const std::string& text,
                             const std::function<absl::Status()>& admit = {});

  // Changes a job as `decide` says, and returns it as it is then. Returns NotFound if there is no
  // such job, FailedPrecondition (ILLEGAL_TRANSITION) for an illegal transition, and errors of
  // `decide` and of the store. On an error nothing has changed.
  absl::StatusOr<JobPtr> Change(const std::string& id, const Decide& decide);

  // Deletes a job that has ended: readers do not find it any more, also after a restart. Its files,
  // and its row in the store, stay until RemoveRow. `check` is called first, with a lock held as
  // for Decide. Returns NotFound if there is no such job, FailedPrecondition (ILLEGAL_TRANSITION)
  // if it has not ended, and errors of `check` and of the store. On an error nothing has changed.
  absl::Status Delete(const std::string& id,
                      const std::function<absl::Status(const Job& job)>& check);
  // Returns the deleted jobs, also of earlier processes, whose rows are not removed yet.
  std::vector<JobPtr> Deleted() const;
  // Removes the row of a deleted job whose files are removed, and calls the listeners, because
  // there is more room on the disk. Returns the store's errors.
  absl::Status RemoveRow(const std::string& id);

  // Sets the job's last step. Readers see it at once; it is stored with the job's next change. Does
  // nothing if there is no such job.
  void SetProgress(const std::string& id, const StepRecord& record, double step_seconds);
  // Sets the places, by id, of jobs that are QUEUED; others are left alone. Not stored.
  void SetQueuePlaces(const std::map<std::string, QueuePlace>& places);

  // Returns the jobs as announced. REQUIRES: callers only read and watch them.
  JobTable& table() { return table_; }
  const JobTable& table() const { return table_; }
  // Returns how many writes to the store have failed.
  int64_t store_errors() const { return store_errors_; }
  // Returns the time now, to the microsecond, as it is stored.
  absl::Time Now() const;
  const std::string& state_directory() const { return options_.state_directory; }

  // Calls `listener` after each stored change, on the thread that made it and with a lock held. It
  // must return soon, and call nothing of the ledger but its table. Each `owner` has one listener;
  // a second takes the place of the first. RemoveListener waits for a call that is under way;
  // there is none later.
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

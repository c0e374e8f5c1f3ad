// The one place where jobs come to be and change: checks the transition table, writes the store,
// and only then announces, in that order for every change.
//
// Thread safety: all methods may be called from any thread. Changes are made one at a time and wait
// for the disk; reads of table() do not wait for them.
// Invariants: table() never shows a state or an event that the store does not hold.
#ifndef MEGATRAIN_SERVER_JOBS_JOB_LEDGER_H_
#define MEGATRAIN_SERVER_JOBS_JOB_LEDGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "server/jobs/job.h"
#include "server/jobs/job_store.h"
#include "server/jobs/job_table.h"

namespace megatrain {

// One change of one job.
struct JobChange {
  std::optional<JobState> to;  // nothing: the state stays
  // The job's new reason, if `to` is given.
  JobReason reason = JobReason::kNone;
  // For people. With `to`, or if not empty, the change is an event of the job.
  std::string text;
  // What else changes.
  std::function<void(Job* job)> edit;
};

class JobLedger {
 public:
  // Sees the job as it is and says how it changes; nothing: not at all.
  using Decide = std::function<absl::StatusOr<std::optional<JobChange>>(const Job& job)>;

  struct Options {
    std::function<absl::Time()> now = absl::Now;
    // Parses a stored job's file again; an error leaves Job::spec null.
    std::function<absl::StatusOr<JobSpec>(const Job& job)> parse;
  };

  // Reads the store, and brings the jobs that a dead process left active into their state after a
  // restart (restart_rule.h), as events.
  static absl::StatusOr<std::unique_ptr<JobLedger>> Open(std::unique_ptr<JobStore> store,
                                                         Options options);

  // Adds a QUEUED job with a new id and number. AlreadyExists if its user has a job of its
  // request_id; *existing, if not null, is that job then.
  // `finish` completes the job once its id is known.
  absl::StatusOr<JobPtr> Add(Job job, const std::function<void(Job* job)>& finish,
                             JobPtr* existing);

  // The one function that changes a job. An illegal transition is FailedPrecondition
  // (ILLEGAL_TRANSITION), a job that is not there NotFound; an error of `decide` or of the store is
  // passed on, and nothing has changed.
  absl::StatusOr<JobPtr> Change(const std::string& id, const Decide& decide);

  // A step was done. Seen at once, and stored so that it outlives the process though not a power
  // cut: what deaths are measured by.
  absl::Status Progress(const std::string& id, const StepRecord& record, double step_seconds);

  JobTable& table() { return table_; }
  const JobTable& table() const { return table_; }
  absl::Time Now() const { return options_.now(); }

  // Called after each change, from any thread; must return soon. When this returns, the listener
  // that was set before is not called any more.
  void SetListener(std::function<void()> listener);

 private:
  JobLedger(std::unique_ptr<JobStore> store, Options options);
  absl::StatusOr<JobPtr> ChangeLocked(const Job& job, const JobChange& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  void Announce() ABSL_LOCKS_EXCLUDED(listener_mutex_);

  const Options options_;
  const std::unique_ptr<JobStore> store_;
  JobTable table_;
  // Held from the look at the transition table to the announcement.
  Mutex change_mutex_;
  int64_t last_number_ ABSL_GUARDED_BY(change_mutex_) = 0;
  Mutex listener_mutex_;
  std::function<void()> listener_ ABSL_GUARDED_BY(listener_mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_JOB_LEDGER_H_

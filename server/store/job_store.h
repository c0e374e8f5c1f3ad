// JobStore keeps jobs and their events on disk, in one SQLite database in the state directory.
//
// Durability: a write is on stable storage when its method returns (write-ahead log,
// synchronous=FULL). Each writing method is one transaction: a crash leaves all of it or nothing.
//
// Errors name the file: ResourceExhausted (disk full; the write is undone and the store can be used
// on), DataLoss (the file is damaged), FailedPrecondition (a newer version wrote it, another
// program's database, or another process holds it), Internal (the rest). Those of DataLoss and
// FailedPrecondition say what to do. Open may return any of FileError's codes besides.
//
// Thread safety: all methods may be called from any thread; they are carried out one at a time.
#ifndef MEGATRAIN_SERVER_STORE_JOB_STORE_H_
#define MEGATRAIN_SERVER_STORE_JOB_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"
#include "engine/base/mutex.h"
#include "server/jobs/job.h"
#include "server/store/sqlite_database.h"

namespace megatrain {

inline constexpr char kJobStoreFileName[] = "jobs.sqlite3";

struct StoredJob {
  Job job;
  std::vector<JobEvent> events;  // by sequence, the last kJobEventsKept
  bool deleted = false;          // by MarkDeleted; waits for Remove
};

class JobStore {
 public:
  // Opens `directory`/jobs.sqlite3, which is made if it is missing (the directory too, mode 0700),
  // checks all of it, and brings an older schema up to date. Returns FailedPrecondition if another
  // process has it open; the lock ends with the process at the latest.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& directory);

  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // Adds a job with its first event. Returns AlreadyExists if the id, the number, or the user's
  // request_id is taken. REQUIRES, as Update does: job.file is not null.
  absl::Status Insert(const Job& job, const JobEvent& event);
  // Replaces the job and appends the events, which ascend by sequence. Removes its oldest events
  // beyond kJobEventsKept. Returns NotFound if there is no such job.
  absl::Status Update(const Job& job, const std::vector<JobEvent>& events);
  // Marks a job that is to be removed. Its request_id is free for another job. Returns NotFound if
  // there is no such job.
  absl::Status MarkDeleted(const std::string& id);
  // Removes the job and its events. Does nothing if there is no such job.
  absl::Status Remove(const std::string& id);
  // Returns all jobs by number. Job::spec is null. Returns DataLoss if one is damaged.
  absl::StatusOr<std::vector<StoredJob>> ReadAll();

  const std::string& path() const { return path_; }

 private:
  JobStore(std::string path, Descriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  absl::Status OpenDatabase() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Migrate(int64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out `body`, which has mutex_, as one transaction.
  absl::Status Transaction(const std::function<absl::Status()>& body) ABSL_LOCKS_EXCLUDED(mutex_);
  // NotFound if the last statement changed no row.
  absl::Status CheckChanged(const std::string& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteEvent(int64_t number, const JobEvent& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadJobs(std::vector<StoredJob>* jobs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadOverrides(StoredJob* stored) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadEvents(StoredJob* stored) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Descriptor lock_;  // locked
  Mutex mutex_;
  std::unique_ptr<SqliteDatabase> database_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_STORE_JOB_STORE_H_

// JobStore keeps jobs and their events on disk, in one SQLite database in the state directory.
//
// Durability: a write is on stable storage when its method returns (write-ahead log,
// synchronous=FULL). Each writing method is one transaction: a crash leaves all of it or nothing.
//
// Messages of errors name the file or its directory. Besides the codes that a method names, the
// errors are:
// - ResourceExhausted: the disk is full (or Open has no memory). The write is undone, and the store
//   can still be used.
// - DataLoss: the file is damaged. The message says what to do.
// - Internal: any other failure of SQLite.
// Open returns besides them:
// - FailedPrecondition: a newer version wrote the file, it is another program's database, or
//   another JobStore, of any process, holds the directory. The message says what to do.
// - The codes of FileError.
//
// Thread safety: all methods may be called from any thread. They are carried out one at a time, and
// wait for the disk.
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
  bool deleted = false;          // MarkDeleted was called, and Remove was not
};

class JobStore {
 public:
  // Opens `directory`/jobs.sqlite3, which is made if it is missing (the directory too, with mode
  // 0700). Checks the whole file, and brings an older schema up to date. The store holds a lock on
  // the directory until it is destroyed or the process ends.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& directory);

  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // Adds a job with its first event. Returns AlreadyExists if the id, the number, or the user's
  // request_id is taken. REQUIRES: job.file is not null; event.sequence is 1.
  absl::Status Insert(const Job& job, const JobEvent& event);
  // Replaces the job of job.id and appends the events. Removes its oldest events beyond
  // kJobEventsKept. Returns NotFound if there is no such job, and AlreadyExists if it has an event
  // of such a number. REQUIRES: job.file is not null and, like job.number, as given to Insert; the
  // events' numbers go on from the job's last without a gap; the job is not marked as deleted.
  absl::Status Update(const Job& job, const std::vector<JobEvent>& events);
  // Marks a job as deleted, until Remove. Its request_id is then free for another job. Returns
  // NotFound if there is no such job.
  absl::Status MarkDeleted(const std::string& id);
  // Removes the job and its events. Does nothing if there is no such job.
  absl::Status Remove(const std::string& id);
  // Returns all jobs, also deleted ones, by number. Job::spec is null. Returns DataLoss if a job or
  // an event is damaged, or if a job has no events or lacks a kept one before its last.
  absl::StatusOr<std::vector<StoredJob>> ReadAll();

 private:
  JobStore(std::string path, Descriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  absl::Status OpenDatabase() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Migrate(int64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out `body`, which has mutex_, as one transaction.
  absl::Status Transaction(const std::function<absl::Status()>& body) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns NotFound if the last statement changed no row.
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

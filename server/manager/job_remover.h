// Removes what is left of deleted jobs, and deletes ended ones that are kept no longer.
//
// A job is gone for every reader when the ledger has taken it away; what follows here takes as long
// as its files do. Killed in between, it goes on at the next start: the store remembers the job
// until nothing else is left of it.
//
// Thread safety: RunRound and Start ... destruction exclude each other.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_REMOVER_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_REMOVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "server/jobs/job.h"
#include "server/manager/job_disk.h"
#include "server/manager/job_ledger.h"
#include "server/worker/job_records.h"

namespace megatrain {

// Removes the job's directory and makes that durable: what belongs to its submitter with his rights
// (own_directory.h), the rest with the daemon's. On an error something is left; the rest is removed
// by another call. Cancelled once `cancelled` is true.
absl::Status RemoveJobFiles(const std::string& state_directory, const std::string& id,
                            FileSystem* files, const std::function<bool()>& cancelled = {});

class JobRemover {
 public:
  struct Options {
    // Of each user, the ended ones beyond it that hold no checkpoints are deleted; 0 = none is.
    int64_t keep_ended_jobs = 0;
    FileSystem* files = PosixFileSystem();
    JobDisk* disk = nullptr;  // told what is removed; may be null
    // A line for the daemon's own log. May be empty.
    std::function<void(const std::string& line)> log = {};
  };

  // All must outlive the remover.
  JobRemover(JobLedger* ledger, JobRecordsDirectory* records, Options options);
  // Gives up what is being removed: the next start goes on with it.
  ~JobRemover();
  JobRemover(const JobRemover&) = delete;
  JobRemover& operator=(const JobRemover&) = delete;

  // Begins to work, on a thread of its own, whenever something has changed.
  void Start();

  // That of Options is replaced.
  void SetKeepEndedJobs(int64_t jobs);

  // One round. For tests, in place of Start.
  void RunRound();

 private:
  void Loop();
  void Prune();
  void RemoveDeleted();

  JobLedger* const ledger_;
  JobRecordsDirectory* const records_;
  const Options options_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> keep_ended_jobs_;
  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = true;

  // Of the thread alone.
  std::set<std::string> failed_;  // told of once
  int ended_ = -1;                // jobs, when it was last looked which to prune
  int64_t kept_ = 0;              // keep_ended_jobs_ by then

  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_REMOVER_H_

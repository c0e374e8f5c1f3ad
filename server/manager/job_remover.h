// JobRemover removes the files of deleted jobs, and deletes ended jobs that JobsToPrune names. It
// does not delete a job whose own directory holds a checkpoint that the ledger does not know of. It
// removes STATE/jobs/ID of a deleted job; directories that the job's file names (checkpoints,
// output, cache) stay.
//
// Once the ledger has deleted a job, readers no longer find it. Removing its files may take long.
// If the process dies before that is done, the next one goes on, because the store remembers the
// job until nothing else is left of it.
//
// Thread safety: SetKeepEndedJobs may be called from any thread, the other methods from one.
// RunRound must not be called after Start.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_REMOVER_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_REMOVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "server/jobs/job.h"
#include "server/manager/job_disk.h"
#include "server/manager/job_ledger.h"
#include "server/worker/job_records.h"

namespace megatrain {

// Removes the job's directory and makes that durable: the submitter's part with the submitter's
// rights (own_directory.h), the rest with the daemon's. Does nothing if it is not there. On an
// error something is left, which another call may remove. Returns Cancelled once `cancelled`
// returns true, and otherwise the errors of RemoveOwnDirectory and of `files`.
absl::Status RemoveJobFiles(const std::string& state_directory, const std::string& id,
                            FileSystem* files, const std::function<bool()>& cancelled = {});

// Decides which ended jobs the daemon deletes by itself, and has no side effects. Returns the jobs
// to delete, the oldest first: each user's ended jobs without checkpoints of their own, but for the
// `keep` that ended last. 0 keeps none. Checkpoints in a job's own directory are its user's work,
// and only the user deletes them.
std::vector<JobPtr> JobsToPrune(const std::vector<JobPtr>& jobs, int64_t keep);

class JobRemover {
 public:
  struct Options {
    // How many ended jobs without checkpoints are kept for each user; 0 = all.
    int64_t keep_ended_jobs = 0;
    // The time for which one user's jobs are removed before another user's are. A removal that is
    // under way goes on in the user's next turn. Every turn begins a removal, even if this is 0.
    double turn_seconds = 1;
    FileSystem* files = PosixFileSystem();
    JobDisk* disk = nullptr;  // forgets removed jobs; may be null
    // Called with lines for the daemon's log, from the remover's thread. May be empty.
    std::function<void(const std::string& line)> log = {};
  };

  // The ledger, the records, and the pointers of the options must outlive the remover.
  JobRemover(JobLedger* ledger, JobRecordsDirectory* records, Options options);
  // Stops removing; the next start of the daemon goes on with it.
  ~JobRemover();
  JobRemover(const JobRemover&) = delete;
  JobRemover& operator=(const JobRemover&) = delete;

  // Starts a thread that works whenever something has changed, and retries removals that failed.
  // Must be called once at most.
  void Start();

  // Replaces Options::keep_ended_jobs.
  void SetKeepEndedJobs(int64_t jobs);

  // Does one round of work. For tests, in place of Start.
  void RunRound();

 private:
  void Loop();
  void Prune();
  // Gives each user who has deleted jobs one turn. More turns follow in the next round.
  void RemoveDeleted();
  // Removes a deleted job. Returns false if `interrupted` returned true before it was done.
  bool Remove(const Job& job, const std::function<bool()>& interrupted);

  JobLedger* const ledger_;
  JobRecordsDirectory* const records_;
  const Options options_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> keep_ended_jobs_;
  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = true;

  // Used by the thread only.
  std::set<std::string> failed_;  // jobs whose failed removal is in the log
  int ended_ = -1;                // the number of ended jobs at the last Prune
  int64_t kept_ = 0;              // keep_ended_jobs_ at the last Prune

  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_REMOVER_H_

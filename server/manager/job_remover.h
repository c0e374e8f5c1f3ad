// JobRemover removes STATE/jobs/ID of deleted jobs, where STATE is the state directory, and deletes
// old jobs by itself. Directories that a job's file names (checkpoints, output, cache) stay.
//
// It deletes the ended jobs that JobsToPrune names. It spares a job whose own directory,
// STATE/jobs/ID/checkpoints, cannot be read, or has a name that begins with "step-": a checkpoint,
// perhaps unfinished, that the ledger does not know of.
//
// Once the ledger has deleted a job, readers no longer find it. Removing its files may take long.
// If the process dies before all files are removed, the next process goes on, because the store
// remembers the job until nothing else is left of it.
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

// Removes the job's directory, STATE/jobs/ID, and makes that durable, also if the directory is not
// there any more. The job's own directory in it is removed with the submitter's rights
// (own_directory.h), the rest through `files`. On an error something may be left, which another
// call may remove. Returns Cancelled if `cancelled`, which may be empty, returned true while the
// own directory was being removed. Otherwise returns the errors of RemoveOwnDirectory,
// FileSystem::Examine, RemoveTree and SyncDirectory.
absl::Status RemoveJobFiles(const std::string& state_directory, const std::string& id,
                            FileSystem* files, const std::function<bool()>& cancelled = {});

// Returns the jobs that the daemon deletes by itself, in the order in which they ended. These are,
// for each user, the ended jobs without a checkpoint in the job's own directory, except the `keep`
// that ended last; a `keep` of 0 keeps none. Checkpoints in a job's own directory are its user's
// work, and only the user deletes them. REQUIRES: keep >= 0.
std::vector<JobPtr> JobsToPrune(const std::vector<JobPtr>& jobs, int64_t keep);

class JobRemover {
 public:
  struct Options {
    // The number of ended jobs without a checkpoint in their own directory that are kept for each
    // user; 0 = all.
    int64_t keep_ended_jobs = 0;
    // The time for which one user's jobs are removed before another user's are. A removal that is
    // under way goes on in the user's next turn. Every turn begins a removal, even if this is 0.
    double turn_seconds = 1;
    FileSystem* files = PosixFileSystem();  // removes what is the daemon's; not null
    JobDisk* disk = nullptr;                // is told of removed jobs; may be null
    // Called with lines for the daemon's log, from the remover's thread. May be empty.
    std::function<void(const std::string& line)> log = {};
  };

  // The ledger, the records, and the pointers of the options must outlive the remover.
  JobRemover(JobLedger* ledger, JobRecordsDirectory* records, Options options);
  // Stops removing, and waits for the thread. The next start of the daemon removes the rest.
  ~JobRemover();
  JobRemover(const JobRemover&) = delete;
  JobRemover& operator=(const JobRemover&) = delete;

  // Starts a thread that does a round whenever the ledger or keep_ended_jobs has changed. A removal
  // that has failed is tried again in each round, and the next round then follows within a minute.
  // Must be called once at most.
  void Start();

  // Replaces Options::keep_ended_jobs. The thread applies it soon.
  void SetKeepEndedJobs(int64_t jobs);

  // Does one round: deletes what JobsToPrune names, then gives each user with deleted jobs a turn.
  // For tests, in place of Start.
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
  int64_t ended_ = -1;            // how many jobs had ended in this process at the last Prune
  int64_t kept_ = 0;              // keep_ended_jobs_ at the last Prune

  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_REMOVER_H_

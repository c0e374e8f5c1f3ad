// JobDisk knows how many bytes jobs hold beneath the state directory: checkpoints, prepared data,
// metrics, logs. A job's bytes are those of its last measurement. The daemon measures every job at
// its start. It measures a job when the job's data is prepared, after each of its checkpoints, and
// at its end. Nothing is measured while a caller waits for an answer.
//
// Thread safety: all methods may be called from any thread; only Measure waits for the disk.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_DISK_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_DISK_H_

#include <cstdint>
#include <map>
#include <string>

#include "engine/base/mutex.h"
#include "server/jobs/job.h"
#include "server/jobs/user_limits.h"
#include "server/manager/job_table.h"

namespace megatrain {

class JobDisk {
 public:
  // Only disk_bytes of `limits` matters here. While it is 0, nothing is measured; after changing it
  // from 0, measure all jobs. `limits` must outlive the object.
  JobDisk(std::string state_directory, const SharedUserLimits* limits);

  // Measures the files in the job's directory that are less than kTreeLevelsMax levels down. What
  // cannot be read counts as empty. A job that has deeper directories counts as at least the limit,
  // so that files in them do not escape it. Does nothing if the limit is 0.
  void Measure(const Job& job);
  // Forgets a job whose files are removed. Does nothing if it was never measured.
  void Forget(const std::string& job_id);

  // Returns the bytes that the user's jobs held when they were measured.
  int64_t UserBytes(int64_t uid) const;
  // Returns the bytes that are reserved for checkpoints of the user's jobs in `table` that have not
  // ended: for each of them OwnCheckpointBytes less all that the job held when it was measured, but
  // not less than 0. Prepared data, metrics and logs count as held too, so the jobs may come to
  // hold more than UserBytes and this together.
  int64_t UserReservedBytes(int64_t uid, const JobTable& table) const;
  // Returns "; job ID holds directories ...", for messages that tell UserBytes; empty if no job of
  // the user has directories that are too deep.
  std::string WhyTooDeep(int64_t uid) const;
  // Returns why, for people, the job's next checkpoint would take its user over the limit; empty if
  // it would not, if there is no limit, or if the job writes its checkpoints elsewhere.
  std::string WhyOverLimit(const Job& job) const;

 private:
  struct Held {
    int64_t uid = 0;
    int64_t bytes = 0;
    bool too_deep = false;
  };

  const std::string state_directory_;
  const SharedUserLimits* const limits_;
  mutable Mutex mutex_;
  std::map<std::string, Held> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int64_t> users_ ABSL_GUARDED_BY(mutex_);  // sums of their jobs' bytes
};

// Returns the bytes that a job's checkpoints will take in its own directory: the newest
// checkpoint.keep of them, and one that is being written. The one that training.keep_best keeps is
// not counted. Returns 0 if they are elsewhere, or if Job::spec is null.
int64_t OwnCheckpointBytes(const Job& job);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_DISK_H_

// JobDisk knows how many bytes jobs hold beneath the state directory: checkpoints, prepared data,
// metrics, logs. A job's bytes are those of its last measurement. The daemon measures every job at
// its start. It measures a job when the job's data is prepared, after each of its checkpoints, and
// at its end. Nothing is measured while a caller waits for an answer.
//
// Thread safety: all methods may be called from any thread. Only Measure waits for the disk.
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
  // Only disk_bytes of `limits`, called the limit below, matters here. While it is 0, nothing is
  // measured. After it is changed, the caller must measure all jobs. `limits` must outlive this.
  JobDisk(std::string state_directory, const SharedUserLimits* limits);

  // Measures the job's files as MeasureJobDirectory (own_directory.h) does. That leaves out
  // directories that are kTreeLevelsMax levels down (directory_tree.h) or that it has no right to
  // read. A job that has such directories counts as at least the limit, so that files in them do
  // not escape it. What cannot be read for another reason counts as empty. Does nothing if the
  // limit is 0.
  void Measure(const Job& job);
  // Forgets a job whose files are removed. Does nothing if it was never measured.
  void Forget(const std::string& job_id);

  // Returns the bytes that the job held when it was measured; 0 if it never was.
  int64_t JobBytes(const std::string& job_id) const;
  // Returns the bytes that the user's jobs held when they were measured.
  int64_t UserBytes(int64_t uid) const;
  // Returns the bytes that are reserved for checkpoints of the user's jobs in `table` that have not
  // ended. For each of them these are OwnCheckpointBytes less all that the job held when it was
  // measured, but not less than 0. Returns the largest int64_t if the sum is more than that.
  // Prepared data, metrics and logs count as held too, so the jobs may come to hold more than
  // UserBytes and UserReservedBytes together.
  int64_t UserReservedBytes(int64_t uid, const JobTable& table) const;
  // Returns "; job ID holds directories ..." about one job of the user that has directories that
  // Measure left out, and "" if there is none. It is for messages that tell UserBytes.
  std::string NoteOnUnmeasured(int64_t uid) const;
  // Returns why, for people, the job's next checkpoint would take its user over the limit. Returns
  // "" if it would not, if there is no limit, or if the job writes its checkpoints elsewhere.
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
// checkpoint.keep of them, the one that training.keep_best keeps, and one that is being written.
// Returns 0 if the checkpoints are elsewhere or Job::spec is null, and the largest int64_t if the
// bytes are more than that.
int64_t OwnCheckpointBytes(const Job& job);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_DISK_H_

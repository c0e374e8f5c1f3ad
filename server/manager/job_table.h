// JobTable holds all jobs and their events in memory, as JobLedger last put them. Every read is
// answered from it.
//
// Thread safety: all methods may be called from any thread. Each may wait briefly for a mutex.
// Invariants: the store holds what the table shows, except progress and places in the queue. A
// job's events are numbered 1, 2, 3, ..., and the last kJobEventsKept are there.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_TABLE_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_TABLE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "server/jobs/job.h"
#include "server/manager/job_watch.h"

namespace megatrain {

// The numbers of jobs by state.
struct JobCounts {
  int queued = 0;
  int active = 0;  // PREPARING, RUNNING, PAUSING, CANCELLING
  int paused = 0;
  int ended = 0;
};

class JobTable {
 public:
  JobTable() = default;
  JobTable(const JobTable&) = delete;
  JobTable& operator=(const JobTable&) = delete;

  // Adds a job or replaces it, and appends `events`, whose numbers continue those of the job's
  // events. Then calls on_ready of the job's watches, on this thread and without the table's lock.
  void Put(Job job, std::vector<JobEvent> events);
  // Removes a job and calls on_ready of its watches, as Put does. Does nothing if there is no such
  // job.
  void Erase(const std::string& id);
  JobPtr Find(const std::string& id) const;  // null: none
  // Finds a user's job by the request_id that made it. Null: none, or `request_id` is empty.
  JobPtr FindRequest(int64_t uid, const std::string& request_id) const;
  std::vector<JobPtr> All() const;   // by number
  std::vector<JobPtr> Live() const;  // those that have not ended, by number
  // Returns at most `count` jobs for which `filter` holds, by number: rising from above
  // `after`, or falling from below it (0: from the end). `filter` is called with a lock held.
  std::vector<JobPtr> Range(int64_t after, bool descending, size_t count,
                            const std::function<bool(const Job& job)>& filter) const;
  JobCounts Counts() const;
  // Returns how many jobs this process has seen end, by their state and reason.
  std::map<std::pair<JobState, JobReason>, int64_t> Endings() const;
  // Returns the sequence number of the job's last event; 0 if there is no such job.
  int64_t LastEvent(const std::string& id) const;
  // Returns at most `count` events, from the number `first` or the oldest that is kept on; none if
  // there is no such job.
  std::vector<JobEvent> Events(const std::string& id, int64_t first, size_t count) const;

  // Returns a watch as JobManager::Watch does; one of a job that is not there says so at its first
  // poll. REQUIRES: 1 <= first_sequence <= LastEvent + 1. The table must outlive the watch.
  std::unique_ptr<JobWatch> Watch(const std::string& id, int64_t first_sequence,
                                  std::function<void()> on_ready);

 private:
  friend class JobWatch;

  struct Entry {
    JobPtr job;
    std::deque<JobEvent> events;
    std::vector<std::shared_ptr<JobWatch::Bell>> bells;
  };

  const Entry* FindEntry(const std::string& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobWatch::Update Poll(JobWatch* watch, int events_max);
  bool HasEvents(const JobWatch& watch) const;
  void Unwatch(JobWatch* watch);

  mutable Mutex mutex_;
  std::map<int64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by number
  std::set<int64_t> live_ ABSL_GUARDED_BY(mutex_);            // jobs that have not ended
  std::unordered_map<std::string, int64_t> numbers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<int64_t, std::string>, int64_t> requests_ ABSL_GUARDED_BY(mutex_);
  JobCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<JobState, JobReason>, int64_t> endings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_TABLE_H_

// JobTable holds all jobs and their events in memory, except deleted ones, so that no read waits
// for the store. JobLedger fills it.
//
// Thread safety: all methods may be called from any thread. Each may wait briefly for a mutex.
// Invariants: the store holds what the table shows, except the newest `step` and the fields under
// "Not stored" in job.h. A job's events are numbered 1, 2, 3, ..., and the last kJobEventsKept of
// them are kept.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_TABLE_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_TABLE_H_

#include <atomic>
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

namespace megatrain {

struct JobCounts {
  int queued = 0;
  int active = 0;  // PREPARING, RUNNING, PAUSING, CANCELLING
  int paused = 0;
  int ended = 0;
};

class JobTable;

// JobWatch is a reader's view of one job: its events from a sequence number on, and the job
// whenever it has changed.
//
// A watch is a position in the job's event log and copies no events, so a slow reader costs the
// daemon no more than a fast one. A slow reader still gets each event that is kept
// (kJobEventsKept), and is told the numbers of those that it has missed. Each poll gives the job as
// it is then. States in between are only in the events.
//
// Thread safety: one thread at a time. `on_ready` is called from any thread.
// Invariants: after a Poll without more_events, on_ready is called for later news, unless it was
// called while that Poll ran. Whoever is called during a Poll must poll again.
class JobWatch {
 public:
  struct Update {
    JobPtr job;  // null: unchanged since the last poll
    // The first and the last number of the events that the reader has missed, because they are not
    // kept any more. They come before `events`. 0: none.
    int64_t missed_first = 0, missed_last = 0;
    std::vector<JobEvent> events;  // the next ones, in order
    bool more_events = false;      // there are more than events_max: poll again at once
    bool ended = false;            // the job has ended and no events follow; only its deletion can
    bool deleted = false;          // the job is not in the table; the other fields are not set
  };

  // Waits for a call of on_ready that is under way. No call follows. REQUIRES: the caller holds no
  // lock that on_ready takes, and is not within on_ready.
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // Returns the news since the last call, with at most `events_max` events. Does not wait for news.
  // The first call gives the job. After `deleted` it stays so. REQUIRES: events_max > 0.
  Update Poll(int events_max = 100);

  // Returns true if the next Poll gives events or tells that the job is gone; false if it gives at
  // most a newer state of the job.
  bool HasEvents() const;

 private:
  friend class JobTable;

  // The part of a watch that the table keeps. It may outlive the watch while a notification is
  // under way.
  struct Bell {
    explicit Bell(std::function<void()> on_ready) : on_ready(std::move(on_ready)) {}
    // Calls on_ready once for a new state of the job, and once for events, until the next Poll.
    void Ring(bool for_event) {
      if (for_event) {
        if (rung.exchange(kForEvent) == kForEvent) return;
      } else {
        int quiet = kNot;
        if (!rung.compare_exchange_strong(quiet, kForPicture)) return;
      }
      MutexLock lock(&mutex);
      if (on_ready) on_ready();
    }
    enum : int { kNot, kForPicture, kForEvent };
    std::atomic<int> rung{kNot};
    Mutex mutex;
    std::function<void()> on_ready ABSL_GUARDED_BY(mutex);
  };

  JobWatch(JobTable* table, std::string id, int64_t next_sequence, std::shared_ptr<Bell> bell)
      : table_(table), id_(std::move(id)), next_sequence_(next_sequence), bell_(std::move(bell)) {}

  JobTable* const table_;
  const std::string id_;
  int64_t next_sequence_;
  const std::shared_ptr<Bell> bell_;
  JobPtr seen_;
};

class JobTable {
 public:
  JobTable() = default;
  JobTable(const JobTable&) = delete;
  JobTable& operator=(const JobTable&) = delete;

  // Adds a job, or replaces the one of its number, and appends `events`. Then calls on_ready of the
  // job's watches, as JobManager::Watch describes, on this thread and without the table's lock.
  // REQUIRES: the numbers of `events` continue those of the job's events; a replacement has the
  // same id, user and request_id.
  void Put(Job job, std::vector<JobEvent> events);
  // Removes a job, if it is there, and calls on_ready of its watches as Put does.
  void Erase(const std::string& id);
  JobPtr Find(const std::string& id) const;  // null: there is none
  // Returns the user's job that has this request_id; null if there is none or `request_id` is
  // empty.
  JobPtr FindRequest(int64_t uid, const std::string& request_id) const;
  std::vector<JobPtr> All() const;   // by number
  std::vector<JobPtr> Live() const;  // those that have not ended, by number
  // Returns at most `count` jobs for which `filter` returns true. They are those with numbers above
  // `after`, in ascending order; or, if `descending`, those with numbers below `after` (0: all
  // jobs), in descending order. `filter` is called with a lock held, so it must not call the table.
  // It must not be empty.
  std::vector<JobPtr> Range(int64_t after, bool descending, size_t count,
                            const std::function<bool(const Job& job)>& filter) const;
  JobCounts Counts() const;
  // Returns how many jobs have ended in this process, by the state and reason with which they
  // ended.
  std::map<std::pair<JobState, JobReason>, int64_t> Endings() const;
  // Returns the sequence number of the job's last event; 0 if there is no such job or it has no
  // event.
  int64_t LastEvent(const std::string& id) const;
  // Returns at most `count` events, beginning with the number `first`, or with the oldest that is
  // kept if that is later. Returns none if there is no such job.
  std::vector<JobEvent> Events(const std::string& id, int64_t first, size_t count) const;

  // Returns a watch as JobManager::Watch does. The first poll tells if there is no such job.
  // `on_ready` may be empty. It must return soon, and must neither use nor destroy the watch. The
  // table must outlive the watch. REQUIRES, if the job is there: first_sequence is from 1 to
  // LastEvent + 1.
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

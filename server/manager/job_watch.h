// JobWatch is a reader's view of one job: its events from a sequence number on, and the job
// whenever it has changed.
//
// A watch is a place in the job's event log and buffers nothing. However slow its reader is, it
// loses no event that is kept (kJobEventsKept), is told which it has missed, and costs the daemon
// no more. Each poll gives the job as it is then; states in between are only in the events.
//
// Thread safety: one thread at a time. `on_ready` is called from any thread.
// Invariants: there is news since the last Poll only if on_ready was called since.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_WATCH_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_WATCH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "server/jobs/job.h"

namespace megatrain {

class JobTable;

class JobWatch {
 public:
  struct Update {
    JobPtr job;  // null: unchanged since the last poll
    // The first and last number of the events before these that are not kept any more; 0: none.
    int64_t missed_first = 0, missed_last = 0;
    std::vector<JobEvent> events;  // in order, the next ones
    bool more_events = false;      // poll again at once
    bool ended = false;            // the job has ended, and this update is the last
    bool deleted = false;          // the job is not there any more; the rest is not set
  };

  // Waits for a call of on_ready that is under way. There is none later. REQUIRES: the caller holds
  // no lock that on_ready takes.
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // Returns the news since the last call, with at most `events_max` events. Does not wait. The
  // first call gives the job.
  Update Poll(int events_max = 100);

  // Returns true if the next Poll gives events or tells that the job is gone; false if it gives at
  // most a newer picture of the job.
  bool HasEvents() const;

 private:
  friend class JobTable;

  // The part of a watch that the table keeps. It may outlive the watch for as long as a
  // notification lasts.
  struct Bell {
    explicit Bell(std::function<void()> on_ready) : on_ready(std::move(on_ready)) {}
    // Calls on_ready once for a new picture of the job, and once for events, until the next Poll.
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

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_WATCH_H_

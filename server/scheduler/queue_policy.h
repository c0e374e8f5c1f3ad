// Decides which queued jobs start next, and what each of the others is told. The decision follows
// from a snapshot, and has no side effects.
//
// - Higher priorities go first. At equal priority the user with the least use of devices goes
//   first, so that users take turns. Use is the recent use (usage_meter.h), and what active jobs
//   and the jobs ahead in the queue will add, but for those that cannot start for a reason of their
//   own. A user's jobs of one priority go in the order of submission.
// - A job that cannot start for a reason of its own (its disk is full, paused jobs hold the memory
//   it needs, its user has all that one user may have) does not hold up those behind it.
// - A job that waits for active ones to end (for devices, or for the memory they hold) keeps its
//   part of what is free now. Otherwise small jobs would keep a large one waiting for ever.
//
// A job that is paused in place (job_runner.h) continues on its own devices. New jobs take other
// devices as long as there are any. Where devices have unequal memory, a job takes the smallest
// free ones on which it fits.
#ifndef MEGATRAIN_SERVER_SCHEDULER_QUEUE_POLICY_H_
#define MEGATRAIN_SERVER_SCHEDULER_QUEUE_POLICY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/host/host_devices.h"
#include "server/jobs/job.h"
#include "server/jobs/user_limits.h"

namespace megatrain {

struct QueuedJob {
  std::string id;
  int64_t number = 0;  // order of submission
  int64_t uid = -1;
  int priority = 0;
  int64_t pool_bytes = 0;  // host memory needed beyond what it holds; 0 = none, or not known
  int devices = 1;         // how many it needs, >= 1; more than it can have means all of those
  std::vector<int> own_devices;  // the only ones that it can have, ascending; empty = any
  // The reason of its own for which it cannot start now; kNone: there is none.
  WaitingReason hold = WaitingReason::kNone;
  std::string hold_text;          // `hold` in words
  std::optional<double> seconds;  // how long it will run, if that is known
};

struct ActiveJob {
  int64_t uid = -1;
  int64_t pool_bytes = 0;         // host memory that it holds
  std::vector<int> devices;       // the numbers of those it has
  std::optional<double> seconds;  // how long it will still run, if that is known
};

struct QueueSnapshot {
  absl::Time now;
  bool accepts = true;  // false: the daemon is stopping, nothing starts
  HostDevices devices = {};
  std::vector<QueuedJob> queued;
  std::vector<ActiveJob> active;
  int64_t pool_bytes = 0;                        // of the host pool; 0 = not known, everything fits
  std::map<int64_t, int64_t> pool_paused_bytes;  // held by jobs that are paused in place, by uid
  std::set<int> paused_devices;                  // the devices on which these will go on
  std::map<int64_t, double> use_seconds;         // recent use, in seconds of one device, by uid
  UserLimits limits = {};                        // running_jobs, devices and host_bytes matter here
};

struct QueueStart {
  std::string id;
  std::vector<int> devices;  // the devices that it is given, ascending

  bool operator==(const QueueStart&) const = default;
};

struct QueueDecision {
  std::vector<QueueStart> start;             // the jobs to start now, in this order
  std::map<std::string, QueuePlace> places;  // of all queued jobs, by id
};

// A job whose length is not known is assumed to add this to its user's use, for each device.
inline constexpr double kUnknownJobSeconds = 3600;

// Returns the jobs to start now, and the place of every queued job, also of those that start. Jobs
// that cannot start for a reason of their own have the last positions. REQUIRES: devices.count > 0;
// the numbers of devices are from 0 to devices.count - 1; devices.bytes is empty or has a value for
// each device; the ids of queued jobs differ.
QueueDecision DecideQueue(const QueueSnapshot& snapshot);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_QUEUE_POLICY_H_

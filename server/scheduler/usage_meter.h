// UsageMeter counts how long each user had devices lately, in seconds of one device. The weight of
// a second halves with each day (kUsageHalfLife) that has passed since.
#ifndef MEGATRAIN_SERVER_SCHEDULER_USAGE_METER_H_
#define MEGATRAIN_SERVER_SCHEDULER_USAGE_METER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "server/jobs/job.h"

namespace megatrain {

inline constexpr absl::Duration kUsageHalfLife = absl::Hours(24);

// Thread safety: one thread at a time.
class UsageMeter {
 public:
  // Adds the use of `devices` devices from `from` to `to` by a job of `uid`. Calls may come in any
  // order of time. If `to` is before `from` (a clock that was set back), nothing is added.
  // REQUIRES: both times are finite.
  void Add(int64_t uid, size_t devices, absl::Time from, absl::Time to);
  // Adds the times up to `now` in which a job's event log, in order, shows it as active (IsActive).
  // A time whose end is not in the log is not added.
  void AddEvents(int64_t uid, size_t devices, const std::vector<JobEvent>& events, absl::Time now);

  // Returns the weighted seconds of each user that has any, as of `now`, by uid. Use after `now`
  // weighs more than 1.
  std::map<int64_t, double> Seconds(absl::Time now) const;

 private:
  // Seconds of each user, weighted by 2^(time / half-life), where the time is counted from
  // `origin_`. So what was added does not change as time passes.
  std::map<int64_t, double> weighted_;
  absl::Time origin_ = absl::InfinitePast();
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_USAGE_METER_H_

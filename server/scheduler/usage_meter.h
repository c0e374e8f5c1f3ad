// UsageMeter counts how long each user had devices lately, in seconds of one device. The weight of
// a second halves with each day that has passed since.
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

// Thread safety: none.
class UsageMeter {
 public:
  // Adds that a job of `uid` had so many devices from `from` to `to`. Calls may come in any order.
  // If `to` is before `from` (a clock that was set back), nothing is added.
  void Add(int64_t uid, size_t devices, absl::Time from, absl::Time to);
  // Adds the times in a job's event log from PREPARING until it left its devices. A time without an
  // end in the log is not added.
  void AddEvents(int64_t uid, size_t devices, const std::vector<JobEvent>& events);

  // Returns the seconds of each user as of `now`, by uid.
  std::map<int64_t, double> Seconds(absl::Time now) const;

 private:
  // Weighted by 2^(time / half-life), the time counted from `origin_`, so that what was added need
  // not be touched again as time passes.
  std::map<int64_t, double> weighted_;
  absl::Time origin_ = absl::InfinitePast();
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_USAGE_METER_H_

#include "server/scheduler/usage_meter.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace megatrain {
namespace {

// 2^(duration / half-life), within what sums and products of two can have: a clock may have been
// wrong by years.
double Weight(absl::Duration duration) {
  return std::exp2(std::clamp(absl::FDivDuration(duration, kUsageHalfLife), -400.0, 400.0));
}

// The integral of the weight over [0, d] is kScale * (Weight(d) - 1).
double Scale() { return absl::ToDoubleSeconds(kUsageHalfLife) / std::log(2.0); }

}  // namespace

void UsageMeter::Add(int64_t uid, size_t devices, absl::Time from, absl::Time to) {
  if (to <= from) return;
  if (origin_ == absl::InfinitePast()) origin_ = from;
  // Moving the origin keeps the weights near 1 in a daemon that runs for years.
  if (to - origin_ > 100 * kUsageHalfLife) {
    const double fade = Weight(origin_ - to);
    for (auto& [user, weighted] : weighted_) weighted *= fade;
    origin_ = to;
  }
  weighted_[uid] +=
      static_cast<double>(devices) * Scale() * (Weight(to - origin_) - Weight(from - origin_));
}

void UsageMeter::AddEvents(int64_t uid, size_t devices, const std::vector<JobEvent>& events,
                           absl::Time now) {
  std::optional<absl::Time> since;
  for (const JobEvent& event : events) {
    if (IsActive(event.to) && !since.has_value()) since = event.time;
    if (!IsActive(event.to) && since.has_value()) {
      Add(uid, devices, *since, std::min(event.time, now));  // a clock may have been ahead
      since.reset();
    }
  }
}

std::map<int64_t, double> UsageMeter::Seconds(absl::Time now) const {
  std::map<int64_t, double> seconds;
  if (origin_ == absl::InfinitePast()) return seconds;
  const double fade = Weight(origin_ - now);
  for (const auto& [uid, weighted] : weighted_) seconds[uid] = weighted * fade;
  return seconds;
}

}  // namespace megatrain

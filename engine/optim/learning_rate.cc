#include "engine/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace megatrain {

double LearningRate(const JobSpec::Schedule& schedule, double peak, int64_t step,
                    int64_t total_steps) {
  const double k = static_cast<double>(step), total = static_cast<double>(total_steps);
  const double warmup = static_cast<double>(schedule.warmup_steps);
  if (step <= schedule.warmup_steps) return peak * k / warmup;
  // From here on total >= k > warmup.
  double remaining = 1;  // s(p)
  switch (schedule.type) {
    case ScheduleType::kCosine:
      remaining = 0.5 * (1 + std::cos(std::numbers::pi * (k - warmup) / (total - warmup)));
      break;
    case ScheduleType::kLinear:
      remaining = 1 - (k - warmup) / (total - warmup);
      break;
    case ScheduleType::kConstant:
      return peak;
    case ScheduleType::kWarmupStableDecay: {
      const double begin = std::max(warmup, total - total * schedule.decay_fraction);
      if (k > begin) remaining = 1 - (k - begin) / (total - begin);
      break;
    }
  }
  return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * remaining);
}

}  // namespace megatrain

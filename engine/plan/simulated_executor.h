// SimulatedExecutor computes when each operation of a schedule would start and end on hardware of
// given rates. Operations wait for the same operations as in the real executor
// (dependency_tracker.h), so waiting times are included.
#ifndef MEGATRAIN_ENGINE_PLAN_SIMULATED_EXECUTOR_H_
#define MEGATRAIN_ENGINE_PLAN_SIMULATED_EXECUTOR_H_

#include <array>
#include <cstdint>
#include <vector>

#include "engine/pipeline/dependency_tracker.h"
#include "engine/pipeline/schedule/lane.h"
#include "engine/pipeline/schedule/schedule.h"

namespace megatrain {

// The rates of the lanes. All must be above 0, except launch_seconds and
// host_memory_bytes_per_second.
//
// The duration of an operation is its bytes divided by its lane's rate. On the compute lane the
// parts of its work run one after the other, each at its own rate, but the duration is at least the
// time to launch the kernels. The time of the operation's copies over the link is added. Each
// direction of the link makes one copy at a time, in the order in which lanes request them, as on a
// GPU with a copy engine for each direction. Copies and AdamW on the host share the host's memory.
// If they ask for more than its rate, all of them are slowed by the same factor.
struct LaneRates {
  double h2d_bytes_per_second = 0;
  double d2h_bytes_per_second = 0;
  double product_flops_per_second = 0;
  double attention_forward_flops_per_second = 0;
  double attention_backward_flops_per_second = 0;
  double device_bytes_per_second = 0;       // other kernels, and AdamW on the device
  double launch_seconds = 0;                // may be 0
  double update_bytes_per_second = 0;       // AdamW on the host
  double host_memory_bytes_per_second = 0;  // 0 = host memory slows nothing
  double gather_bytes_per_second = 0;       // weights that a rank receives from others
  double reduce_bytes_per_second = 0;       // gradients that a rank receives from others and sums
  double disk_bytes_per_second = 0;
  // The update lane uses the threads of the compute lane, so only one of the two runs at a time.
  bool update_shares_compute = false;
};

// Returns the duration of an operation, in seconds, if it waits for no copy of another operation
// and host memory slows nothing.
double OpSeconds(const Op& op, const LaneRates& lane_rates);
// Returns the duration of work on the compute lane, in seconds.
double WorkSeconds(const LayerWork& work, const LaneRates& lane_rates);

// Thread safety: one thread at a time may call methods.
class SimulatedExecutor {
 public:
  struct Span {
    double start_seconds = 0;
    double end_seconds = 0;
  };
  struct Run {
    std::vector<Span> spans;                       // in the schedule's order
    std::array<double, kLanes> busy_seconds = {};  // sums of OpSeconds
    double end_seconds = 0;                        // when the last operation ends
  };

  explicit SimulatedExecutor(const LaneRates& lane_rates) : lane_rates_(lane_rates) {}

  // Adds `schedule` to those submitted before, simulates all of them again from time 0, and returns
  // the times of `schedule`. Dependencies continue across schedules. All of them count as submitted
  // at time 0, because the trainer submits the next step while one runs. The times are right for
  // the schedules submitted so far: copies of a later one may come in between and change them.
  Run Submit(const Schedule& schedule);

 private:
  // The resources that an operation occupies one after the other: the link to the device, its lane,
  // and the link to the host.
  enum Part { kDown, kInside, kUp };
  static constexpr int kParts = 3;
  struct Item {
    int lane = 0;
    int queue = 0;  // its lane, or the lane that it takes turns with
    LaneCounts waits = {};
    std::array<double, kParts> seconds = {};
    bool updates_host = false;  // the part inside moves host memory
    double start_seconds = 0, end_seconds = 0;
  };
  struct Clock;

  std::array<double, kParts> PartsOf(const Op& op) const;

  const LaneRates lane_rates_;
  DependencyTracker tracker_;
  std::vector<Item> items_;  // of all schedules
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_SIMULATED_EXECUTOR_H_

// Runs schedules on a virtual clock: when each operation would start and end on hardware of given
// rates. The waits are those of the real executor (dependency_tracker.h), so a stall shows here
// before it is built.
#ifndef MEGATRAIN_ENGINE_PLAN_SIMULATED_EXECUTOR_H_
#define MEGATRAIN_ENGINE_PLAN_SIMULATED_EXECUTOR_H_

#include <array>
#include <cstdint>
#include <vector>

#include "engine/pipeline/dependency_tracker.h"
#include "engine/pipeline/lane.h"
#include "engine/pipeline/schedule.h"

namespace megatrain {

// Rates, all above 0. An operation lasts its bytes over its lane's rate. On the compute lane its
// kernels run one after the other, each part of its work at its own rate, or as fast as they are
// launched if that is slower. A direction of the link makes one copy at a time, in the order in
// which lanes come to them, as a GPU does that has a copy engine for each.
struct HardwareProfile {
  double h2d_bytes_per_second = 0;
  double d2h_bytes_per_second = 0;
  double product_flops_per_second = 0;
  double attention_forward_flops_per_second = 0;
  double attention_backward_flops_per_second = 0;
  double device_bytes_per_second = 0;
  double launch_seconds = 0;  // may be 0
  double update_bytes_per_second = 0;
  double disk_bytes_per_second = 0;
  // The update lane runs on compute's threads: of the two, one runs at a time.
  bool update_shares_compute = false;
};

// How long an operation lasts that has the link for itself.
double OpSeconds(const Op& op, const HardwareProfile& profile);
// The same of work on the compute lane.
double WorkSeconds(const LayerWork& work, const HardwareProfile& profile);

// Thread safety: one thread at a time.
class SimulatedExecutor {
 public:
  struct Span {
    OpKind kind;
    Lane lane;
    int tile = -1;
    double start_seconds = 0;
    double end_seconds = 0;
  };
  struct Run {
    std::vector<Span> spans;                       // in the schedule's order
    std::array<double, kLanes> busy_seconds = {};  // as OpSeconds
    double h2d_seconds = 0, d2h_seconds = 0;       // of the link, whatever the lane
    double end_seconds = 0;                        // of its last operation
  };

  explicit SimulatedExecutor(const HardwareProfile& profile) : profile_(profile) {}

  // The schedule's operations follow on those before. Every schedule counts as handed over at time
  // 0, as the trainer hands over the next step while one runs. What it returns holds as long as no
  // other schedule follows, whose copies may come between.
  Run Submit(const Schedule& schedule);

 private:
  // What an operation occupies, one after the other.
  enum Part { kDown, kInside, kUp };
  static constexpr int kParts = 3;
  struct Item {
    int lane = 0;
    int queue = 0;  // its lane, or that of the lane it takes turns with
    LaneCounts waits = {};
    std::array<double, kParts> seconds = {};
    double start_seconds = 0, end_seconds = 0;
  };
  struct Clock;

  std::array<double, kParts> PartsOf(const Op& op) const;

  const HardwareProfile profile_;
  DependencyTracker tracker_;
  std::vector<Item> items_;  // of all schedules
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_SIMULATED_EXECUTOR_H_

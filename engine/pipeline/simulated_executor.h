// Runs schedules on a virtual clock: when each operation would start and end on hardware of given
// rates. The waits are those of the real executor (dependency_tracker.h), so a stall shows here
// before it is built.
#ifndef MEGATRAIN_ENGINE_PIPELINE_SIMULATED_EXECUTOR_H_
#define MEGATRAIN_ENGINE_PIPELINE_SIMULATED_EXECUTOR_H_

#include <array>
#include <cstdint>
#include <vector>

#include "engine/pipeline/dependency_tracker.h"
#include "engine/pipeline/lane.h"
#include "engine/pipeline/schedule.h"

namespace megatrain {

// Rates, all above 0. An operation lasts its bytes over its lane's rate; on the compute lane the
// larger of its FLOPs and its bytes.
struct HardwareProfile {
  double h2d_bytes_per_second = 0;
  double d2h_bytes_per_second = 0;
  double flops_per_second = 0;
  double device_bytes_per_second = 0;
  double update_bytes_per_second = 0;
  double disk_bytes_per_second = 0;
  // The update lane runs on compute's threads: of the two, one runs at a time.
  bool update_shares_compute = false;
};

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
    std::vector<Span> spans;  // in the schedule's order
    std::array<double, kLanes> busy_seconds = {};
    double end_seconds = 0;  // of its last operation
  };

  explicit SimulatedExecutor(const HardwareProfile& profile) : profile_(profile) {}

  // The schedule's operations follow on those before; every schedule counts as handed over at time
  // 0, as the trainer hands over the next step while one runs.
  Run Submit(const Schedule& schedule);

 private:
  double Seconds(const Op& op) const;
  double LaneEnd(Lane lane) const;  // of its last operation; 0 = none

  const HardwareProfile profile_;
  DependencyTracker tracker_;
  std::array<std::vector<double>, kLanes> ends_;  // of every operation so far, by lane
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_SIMULATED_EXECUTOR_H_

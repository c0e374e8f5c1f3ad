#include "engine/pipeline/simulated_executor.h"

#include <algorithm>

namespace megatrain {

double WorkSeconds(const LayerWork& work, const HardwareProfile& profile) {
  const double running =
      work.product_flops / profile.product_flops_per_second +
      work.attention_forward_flops / profile.attention_forward_flops_per_second +
      work.attention_backward_flops / profile.attention_backward_flops_per_second +
      work.device_bytes / profile.device_bytes_per_second;
  return std::max(running, work.launches * profile.launch_seconds);
}

double OpSeconds(const Op& op, const HardwareProfile& profile) {
  const double bytes = static_cast<double>(op.bytes);
  switch (op.lane) {
    case Lane::kH2D:
      return bytes / profile.h2d_bytes_per_second;
    case Lane::kCompute:
      return WorkSeconds(op.work, profile);
    case Lane::kD2H:
      return bytes / profile.d2h_bytes_per_second;
    case Lane::kUpdate:
      return bytes / profile.update_bytes_per_second;
    case Lane::kIo:
      return bytes / profile.disk_bytes_per_second;
  }
  return 0;
}

double SimulatedExecutor::LaneEnd(Lane lane) const {
  const std::vector<double>& ends = ends_[static_cast<int>(lane)];
  return ends.empty() ? 0 : ends.back();
}

SimulatedExecutor::Run SimulatedExecutor::Submit(const Schedule& schedule) {
  Run run;
  run.spans.reserve(schedule.ops.size());
  for (const Op& op : schedule.ops) {
    const LaneCounts waits = tracker_.Add(op);
    const int lane = static_cast<int>(op.lane);
    double start = LaneEnd(op.lane);
    if (profile_.update_shares_compute && (op.lane == Lane::kUpdate || op.lane == Lane::kCompute)) {
      start = std::max(LaneEnd(Lane::kUpdate), LaneEnd(Lane::kCompute));
    }
    for (int other = 0; other < kLanes; ++other) {
      if (waits[other] > 0) start = std::max(start, ends_[other][waits[other] - 1]);
    }
    const double seconds = OpSeconds(op, profile_);
    ends_[lane].push_back(start + seconds);
    run.busy_seconds[lane] += seconds;
    run.end_seconds = std::max(run.end_seconds, start + seconds);
    run.spans.push_back({op.kind, op.lane, op.tile, start, start + seconds});
  }
  return run;
}

}  // namespace megatrain

// The five in-order queues that a step runs on.
#ifndef MEGATRAIN_ENGINE_PIPELINE_LANE_H_
#define MEGATRAIN_ENGINE_PIPELINE_LANE_H_

namespace megatrain {

enum class Lane { kH2D, kCompute, kD2H, kUpdate, kIo };
inline constexpr int kLanes = 5;

// Device lanes are streams; the other two are host threads.
constexpr bool IsDeviceLane(Lane lane) { return lane <= Lane::kD2H; }

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_LANE_H_

// The five in-order queues that a step runs on.
#ifndef MEGATRAIN_ENGINE_PIPELINE_LANE_H_
#define MEGATRAIN_ENGINE_PIPELINE_LANE_H_

namespace megatrain {

enum class Lane { kH2D, kCompute, kD2H, kUpdate, kIo };
inline constexpr int kLanes = 5;

// Device lanes are streams; the other two are host threads.
constexpr bool IsDeviceLane(Lane lane) { return lane <= Lane::kD2H; }

constexpr const char* LaneName(Lane lane) {
  switch (lane) {
    case Lane::kH2D:
      return "h2d";
    case Lane::kCompute:
      return "compute";
    case Lane::kD2H:
      return "d2h";
    case Lane::kUpdate:
      return "update";
    case Lane::kIo:
      return "io";
  }
  return "unknown";
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_LANE_H_

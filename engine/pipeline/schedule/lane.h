// The lanes of a step: in-order queues of operations that run beside each other.
#ifndef MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_LANE_H_
#define MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_LANE_H_

namespace megatrain {

// kH2D and kD2H copy between host and device, kCompute runs the layers, kUpdate runs AdamW on the
// host, and kIo writes checkpoints. Updates on the device alternate between two lanes: while one
// loads its state, the other stores. kCollective exchanges weights and gradients with other ranks.
enum class Lane { kH2D, kCompute, kD2H, kDeviceUpdate0, kDeviceUpdate1, kCollective, kUpdate, kIo };
inline constexpr int kLanes = 8;
inline constexpr int kDeviceUpdateLanes = 2;

// Device lanes queue their work on a stream each; the other two work on host threads.
constexpr bool IsDeviceLane(Lane lane) { return lane <= Lane::kCollective; }

// REQUIRES: `index` is in [0, kDeviceUpdateLanes).
constexpr Lane DeviceUpdateLane(int index) {
  return static_cast<Lane>(static_cast<int>(Lane::kDeviceUpdate0) + index);
}

constexpr const char* LaneName(Lane lane) {
  switch (lane) {
    case Lane::kH2D:
      return "h2d";
    case Lane::kCompute:
      return "compute";
    case Lane::kD2H:
      return "d2h";
    case Lane::kDeviceUpdate0:
      return "device update 0";
    case Lane::kDeviceUpdate1:
      return "device update 1";
    case Lane::kCollective:
      return "collective";
    case Lane::kUpdate:
      return "update";
    case Lane::kIo:
      return "io";
  }
  return "unknown";
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_LANE_H_

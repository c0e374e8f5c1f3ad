// The lanes of a step: in-order queues of operations that run beside each other.
#ifndef MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_LANE_H_
#define MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_LANE_H_

namespace megatrain {

enum class Lane {
  kH2D,            // copies from the host to the device
  kCompute,        // runs the layers
  kD2H,            // copies from the device to the host
  kDeviceUpdate0,  // AdamW on the device; of these two lanes one loads while the other stores
  kDeviceUpdate1,
  kCollective,  // exchanges weights and gradients with other ranks
  kUpdate,      // AdamW on the host
  kIo,          // writes checkpoints
};
inline constexpr int kLanes = 8;
inline constexpr int kDeviceUpdateLanes = 2;

// Returns true for the lanes that queue their work on a stream each. The other two, kUpdate and
// kIo, work on host threads.
constexpr bool IsDeviceLane(Lane lane) { return lane <= Lane::kCollective; }

// Returns kDeviceUpdate0 or kDeviceUpdate1. REQUIRES: `index` is in [0, kDeviceUpdateLanes).
constexpr Lane DeviceUpdateLane(int index) {
  return static_cast<Lane>(static_cast<int>(Lane::kDeviceUpdate0) + index);
}

// Returns the name for threads and reports: "device update 0".
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

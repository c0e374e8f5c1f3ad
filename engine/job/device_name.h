// How files and commands name a device.
#ifndef MEGATRAIN_ENGINE_JOB_DEVICE_NAME_H_
#define MEGATRAIN_ENGINE_JOB_DEVICE_NAME_H_

#include <optional>
#include <string_view>

namespace megatrain {

// What a device key expects, for messages.
inline constexpr char kDeviceNames[] = "auto, cpu, cuda or cuda:N";

struct DeviceName {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  int ordinal = -1;  // of cuda:N; -1: of no particular one
};

// Nothing: `text` is none of kDeviceNames.
std::optional<DeviceName> ParseDeviceName(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_DEVICE_NAME_H_

// Parses the names of devices in configuration files and commands.
#ifndef MEGATRAIN_ENGINE_JOB_DEVICE_NAME_H_
#define MEGATRAIN_ENGINE_JOB_DEVICE_NAME_H_

#include <optional>
#include <string>
#include <string_view>

namespace megatrain {

// The accepted names, for messages.
inline constexpr char kDeviceNames[] = "auto, cpu, cuda or cuda:N";
// The accepted names as a regular expression, for the schemas of files.
inline constexpr char kDevicePattern[] = "^(auto|cpu|cuda(:(0|[1-9][0-9]{0,2}))?)$";

struct DeviceName {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  int ordinal = -1;  // N of cuda:N; -1 if no number is given
};

// Parses a name that kDevicePattern describes. Returns nullopt for any other text.
std::optional<DeviceName> ParseDeviceName(std::string_view text);
inline bool IsDeviceName(const std::string& text) { return ParseDeviceName(text).has_value(); }

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_DEVICE_NAME_H_

// Marks the error of a device that this process can no longer use. Only a new process can use it
// again.
#ifndef MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_
#define MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_

#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

// Makes an Internal status for which IsDeviceLost is true.
absl::Status DeviceLostError(std::string_view message);
bool IsDeviceLost(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_

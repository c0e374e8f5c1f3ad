// Marks errors after which this process can no longer use a device. A new process may be able to.
#ifndef MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_
#define MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_

#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

// Makes an Internal status for which IsDeviceLost is true.
absl::Status DeviceLostError(std::string_view message);
// Returns true if DeviceLostError made the status.
bool IsDeviceLost(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_

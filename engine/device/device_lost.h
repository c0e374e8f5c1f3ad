// Marks and recognizes errors after which this process can no longer use a device. A new process
// may be able to use it.
#ifndef MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_
#define MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_

#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

// Makes an Internal status for which IsDeviceLost is true.
absl::Status DeviceLostError(std::string_view message);
// Returns true if `status` is one that DeviceLostError made, or a copy of it. A new status with the
// same code and message is not recognized.
bool IsDeviceLost(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_

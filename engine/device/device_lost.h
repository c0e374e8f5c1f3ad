// A device that can no longer be used by this process: only a new process helps.
#ifndef MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_
#define MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_

#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

// Internal, that IsDeviceLost knows.
absl::Status DeviceLostError(std::string_view message);
bool IsDeviceLost(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_DEVICE_LOST_H_

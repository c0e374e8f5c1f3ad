// What CUDA and its libraries load when a kernel is first used takes memory of the device that is
// nobody's to plan: it is loaded before a job is given what is left.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_WARM_UP_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_WARM_UP_H_

#include "absl/status/status.h"
#include "engine/device/device.h"

namespace megatrain {

// Calls each kernel of the device for a small layer, in both dtypes, attention also by our own
// kernels where a library takes it, and waits. The memory that it works in is given back.
absl::Status WarmUp(Device& device);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_WARM_UP_H_

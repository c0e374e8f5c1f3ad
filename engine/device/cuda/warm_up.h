// Uses every kernel once. CUDA and its libraries take device memory when a kernel is first used,
// and this must happen before a job is given the memory that is left.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_WARM_UP_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_WARM_UP_H_

#include "absl/status/status.h"
#include "engine/device/device.h"

namespace megatrain {

// Calls every method of Kernels that queues work, for a small layer in both dtypes, and waits for
// the work. Attention is called with the device's own kernels and, if there is a library, with that
// too. The memory for this is freed again. Returns the errors of the device and its kernels.
absl::Status WarmUp(Device& device);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_WARM_UP_H_

// Uses the kernels before a job does. CUDA and its libraries take device memory when a kernel is
// first used. This must happen before a job is given the memory that is left.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_WARM_UP_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_WARM_UP_H_

#include "absl/status/status.h"
#include "engine/device/device.h"

namespace megatrain {

// Calls every method of Kernels that queues work, for a small layer in both dtypes, and waits for
// the work. Attention is called with the device's own kernels and, if there is a library for it,
// also in BF16 with AttentionChoice::kAuto, for sizes that the library takes. The device memory
// that this needs is freed again. Returns the first error of the device or its kernels.
absl::Status WarmUp(Device& device);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_WARM_UP_H_

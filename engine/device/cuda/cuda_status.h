// CUDA's errors as absl::Status.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_STATUS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

// OK for 0. Else "cuda: CALL: NAME (NUMBER): TEXT": ResourceExhausted for memory, else Internal. An
// error that CUDA keeps returning from then on (an illegal address, a device that is gone) is
// marked as one that IsDeviceLost knows.
absl::Status CudaStatus(const CudaApi& api, int error, const char* call);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_STATUS_H_

// Converts CUDA's error codes to absl::Status.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_STATUS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

// Returns OK for 0. Otherwise the message is "cuda: CALL: NAME (NUMBER): TEXT" and the code
// ResourceExhausted for lack of memory, else Internal. For an error that CUDA keeps returning from
// then on (an illegal address, a device that is gone) IsDeviceLost is true.
absl::Status CudaStatus(const CudaApi& api, int error, const char* call);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_STATUS_H_

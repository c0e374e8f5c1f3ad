// Converts CUDA's error codes to absl::Status.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_STATUS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

// Converts `error`, which CudaApi's function for `call` returned. Returns OK for 0,
// ResourceExhausted for kCudaMemoryAllocation, and Internal for any other error. The message is
// "cuda: CALL: " and the text of CudaApi::Describe. IsDeviceLost (device_lost.h) is true for an
// error that every later call returns too, such as an illegal address. It is also true for an error
// after which the device cannot be trusted, such as a memory error that was not corrected.
absl::Status CudaStatus(const CudaApi& api, int error, const char* call);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_STATUS_H_

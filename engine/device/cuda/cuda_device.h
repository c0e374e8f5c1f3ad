// The cuda device: CUDA's streams and events, memory by cudaMalloc, and copies between the device
// and pinned host memory.
//
// Messages name the call. For an error that CUDA keeps returning (an illegal address, a device that
// is gone) IsDeviceLost is true; the process must then be restarted.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_DEVICE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/device.h"

namespace megatrain {

// The lowest compute capability (major version) that the kernels are built for.
inline constexpr int kCudaCapabilityMajorMin = 8;

// Finds GPU `ordinal` without setting anything up. Messages say what to do. Returns NotFound if
// there is no driver or no GPU, so that another device may be chosen; FailedPrecondition if the
// driver or the GPU is too old; InvalidArgument if there is no GPU of that number.
absl::StatusOr<CudaDeviceProperties> FindCudaDevice(CudaApi* api, int ordinal);

// Opens GPU `ordinal`, with the fast paths that the environment allows (cuda_switches.h). Returns
// the errors of FindCudaDevice, and Unavailable, with every place that was searched, if the library
// for products is not found.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(std::unique_ptr<CudaApi> api, int ordinal);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_DEVICE_H_

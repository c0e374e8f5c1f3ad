// The cuda device: lanes are streams, events CUDA's, memory one cudaMalloc, the link copies from
// pinned host memory.
//
// Errors name the call. One that CUDA keeps returning (an illegal address, a device that is gone)
// is one that IsDeviceLost knows: the process has to be started again.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_DEVICE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/device.h"

namespace megatrain {

// The first compute capability that the kernels are built for.
inline constexpr int kCudaCapabilityMajorMin = 8;

// Looks for GPU `ordinal` and sets nothing up. Errors say what to do. NotFound: there is nothing to
// use (no driver, no GPU), so that another device may be chosen. FailedPrecondition: there is, and
// it cannot be used as it is (a driver or a GPU that is too old). InvalidArgument: no GPU of that
// number.
absl::StatusOr<CudaDeviceProperties> FindCudaDevice(CudaApi* api, int ordinal);

// Sets it up, with the fast paths that the environment leaves (cuda_switches.h). Errors as above;
// Unavailable: no library of products, with every place that was looked at.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(std::unique_ptr<CudaApi> api, int ordinal);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_DEVICE_H_

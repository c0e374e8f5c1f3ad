// The cuda device: CUDA's streams and events, memory by cudaMalloc, and copies between the device
// and pinned host memory.
//
// Error messages name the call of CUDA that failed. Some errors, such as an illegal address or a
// device that is gone, come again from every later call. IsDeviceLost (device_lost.h) is true for
// those, and the process must be restarted.
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

// Returns the properties of GPU `ordinal` (CUDA's number, from 0), which it checks but does not set
// up. Messages of errors say what to do:
// - NotFound: there is no driver or no GPU, so that another device may be chosen.
// - FailedPrecondition: the driver or the GPU is too old.
// - InvalidArgument: there are GPUs, but none of that number.
// - Other failures of CUDA give the errors of CudaStatus.
absl::StatusOr<CudaDeviceProperties> FindCudaDevice(CudaApi* api, int ordinal);

// Opens GPU `ordinal`, with the fast paths that the environment allows (cuda_switches.h). Returns
// the errors of FindCudaDevice, ReadCudaSwitches, CublasLt::Load (Unavailable) and CudaStatus, and
// ResourceExhausted for lack of host memory.
//
// Devices may share `api` if they are the same GPU, because it loads its libraries for one GPU.
// Uses every kernel once (warm_up.h) if the GPU has memory of its own. If that fails and the device
// is not lost, the device is returned all the same, and Describe tells why.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(std::shared_ptr<CudaApi> api, int ordinal);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_DEVICE_H_

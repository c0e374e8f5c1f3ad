// The cuda device, which is an NVIDIA GPU. It has CUDA's streams and events, memory by cudaMalloc,
// and copies between the device and pinned host memory.
//
// The message of an error of CUDA names the call or the kernel that failed; that of Allocate for
// lack of memory has the bytes instead. Some errors, such as an illegal address or a device that is
// gone, come again from every later call. IsDeviceLost (device_lost.h) is true for these, and only
// a new process can use the device again.
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

// Checks GPU `ordinal` (CUDA's number, from 0) and returns its properties. Does not set the GPU up.
// Returns these errors:
// - NotFound if there is no driver or no GPU, so that another device may be chosen.
// - FailedPrecondition if the driver or the GPU is too old.
// - InvalidArgument if there are GPUs, but none of that number.
// - The errors of CudaStatus for other failures of CUDA.
absl::StatusOr<CudaDeviceProperties> FindCudaDevice(CudaApi* api, int ordinal);

// Opens GPU `ordinal`, with the fast paths that the environment allows (cuda_switches.h). Returns
// the errors of FindCudaDevice, ReadCudaSwitches (InvalidArgument), CublasLt::Load (Unavailable)
// and CudaStatus, and ResourceExhausted for lack of host memory.
//
// The device keeps `api`. Several devices may share one `api` only if they are the same GPU,
// because it loads its libraries for one GPU. If the GPU has memory of its own and
// api->loads_lazily(), every method of Kernels that queues work is called (WarmUp). If that fails
// but the device is not lost, the device is returned all the same, and its Describe tells why.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(std::shared_ptr<CudaApi> api, int ordinal);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_DEVICE_H_

// Opens NVIDIA GPUs. Programs pass OpenCudaDevice to the engine as their GpuOpener.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_OPEN_CUDA_DEVICE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_OPEN_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace megatrain {

// Opens GPU `ordinal` (CUDA's number, from 0) and sets it up. Returns the errors of
// CreateCudaDevice (cuda_device.h). In a build without CUDA it always returns NotFound.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_OPEN_CUDA_DEVICE_H_

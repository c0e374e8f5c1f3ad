// The GpuOpener of the programs.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_OPEN_CUDA_DEVICE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_OPEN_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace megatrain {

// Opens a GPU, with the errors of a GpuOpener. A build without CUDA always returns NotFound.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_OPEN_CUDA_DEVICE_H_

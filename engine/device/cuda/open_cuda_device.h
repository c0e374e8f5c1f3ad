// The GpuOpener of programs: CUDA's own edge, if this build has the toolkit.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_OPEN_CUDA_DEVICE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_OPEN_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace megatrain {

// Errors as of a GpuOpener; a build without CUDA has nothing to use.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_OPEN_CUDA_DEVICE_H_

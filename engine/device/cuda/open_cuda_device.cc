#include "engine/device/cuda/open_cuda_device.h"

#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal) {
  return CreateCudaDevice(OpenCudaApi(), ordinal);
}

}  // namespace megatrain

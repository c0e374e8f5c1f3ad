// OpenCudaDevice of a build without CUDA's toolkit.
#include "engine/device/cuda/open_cuda_device.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int) {
  return absl::NotFoundError(
      "cuda: this program was built without CUDA; build it where CUDA 13's toolkit is "
      "(/usr/local/cuda, or CUDA_HOME), or write device: cpu");
}

}  // namespace megatrain

// The edge of a build without CUDA's toolkit.
#include "engine/device/cuda/cuda_api.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<CudaApi>> OpenCudaApi() {
  return absl::UnavailableError(
      "cuda: this program was built without CUDA; build it where CUDA 13's toolkit is "
      "(/usr/local/cuda, or CUDA_HOME), or write device: cpu");
}

}  // namespace megatrain

// LoadNccl of builds without NCCL's headers.
#include "engine/comm/nccl_api.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl() {
  return absl::UnimplementedError(
      "a job on several GPUs needs NCCL, without which this program was built; build it where "
      "CUDA 13's toolkit has nccl.h (/usr/local/cuda/include, or CUDA_HOME)");
}

}  // namespace megatrain

// CudnnAttention of builds without the headers of cuDNN or of its frontend.
#include "engine/device/cuda/libraries/cudnn_attention.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Load() {
  return absl::UnavailableError("this build has no cuDNN");
}

}  // namespace megatrain

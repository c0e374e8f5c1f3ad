// Where the headers of cuDNN or of its frontend are not.
#include "engine/device/cuda/libraries/cudnn_attention.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Load() {
  return absl::UnavailableError("this build has no cuDNN");
}

}  // namespace megatrain

// Which tokens of a sequence belong together, for attention.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DOCUMENTS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DOCUMENTS_H_

#include <cstdint>

#include "engine/device/cuda/kernels/launch.h"
#include "engine/device/kernel_args.h"

namespace megatrain::cuda {

// Where the document of `token` starts and where it ends.
__device__ inline int64_t DocumentStart(const AttentionArgs& args, int64_t token) {
  return args.document_bounds[2 * token];
}
__device__ inline int64_t DocumentEnd(const AttentionArgs& args, int64_t token) {
  return args.document_bounds[2 * token + 1];
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DOCUMENTS_H_

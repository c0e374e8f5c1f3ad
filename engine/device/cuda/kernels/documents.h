// The bounds of a token's document, for the attention kernels. StepRunner::PrepareBatch fills
// document_bounds. It derives the bounds from the batch's document starts, which come from
// engine/data/sequences/batch.cc.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DOCUMENTS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DOCUMENTS_H_

#include <cstdint>

#include "engine/device/cuda/kernels/launch.h"
#include "engine/device/kernel_args.h"

namespace megatrain::cuda {

// Return the first token of the document that holds `token`, and the token after its last.
__device__ inline int64_t DocumentStart(const AttentionArgs& args, int64_t token) {
  return args.document_bounds[2 * token];
}
__device__ inline int64_t DocumentEnd(const AttentionArgs& args, int64_t token) {
  return args.document_bounds[2 * token + 1];
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DOCUMENTS_H_

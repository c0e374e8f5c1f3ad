// Helpers that the attention kernels share: the size of heads, which tokens see each other, and the
// sinks of heads (AttentionShaping).
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_ATTENTION_SHAPING_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_ATTENTION_SHAPING_H_

#include <cstdint>

#include "engine/device/cuda/kernels/launch.h"
#include "engine/device/cuda/kernels/primitives.h"
#include "engine/device/kernel_args.h"

namespace megatrain::cuda {

// Returns the larger of head_dim and value_dim, by which a kernel is chosen.
template <typename Args>
int64_t LargestDim(const Args& args) {
  return args.head_dim > args.value_dim ? args.head_dim : args.value_dim;
}

// SightStart returns the first token that `token` sees. SightEnd returns the token after the last
// one that sees `token`. A token sees itself and the earlier tokens of its document or, with a
// window, those of them that are in the window. Neither result decreases from a token to the next.
__device__ inline int64_t SightStart(const AttentionArgs& args, int64_t token) {
  const int64_t start = args.document_bounds[2 * token];
  const int64_t window = args.shaping.window;
  return window > 0 && token - start >= window ? token - window + 1 : start;
}
__device__ inline int64_t SightEnd(const AttentionArgs& args, int64_t token) {
  const int64_t end = args.document_bounds[2 * token + 1];
  const int64_t window = args.shaping.window;
  return window > 0 && end - token > window ? token + window : end;
}

// Returns a head's sink, or -infinity if there are no sinks. An online softmax includes the sink if
// it begins with the sink as its largest score and with 1 as its sum.
template <typename T>
__device__ float SinkOf(const AttentionShaping& shaping, int64_t head) {
  return shaping.sinks != nullptr ? ToFloat(static_cast<const T*>(shaping.sinks)[head]) : -INFINITY;
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_ATTENTION_SHAPING_H_

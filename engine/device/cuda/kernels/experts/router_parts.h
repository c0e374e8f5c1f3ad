// Device functions that the kernels of routers share. A warp computes a token.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_EXPERTS_ROUTER_PARTS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_EXPERTS_ROUTER_PARTS_H_

#include <cstdint>

#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

// The values from which a softmax is computed: the largest logit, and the sum of exp(logit -
// largest) over all logits. `total` is NaN if a logit is NaN or +inf, or if all are -inf.
struct SoftmaxSums {
  float largest = 0, total = 1;

  // Returns the softmax's value for one of the logits.
  __device__ float Probability(float logit) const { return expf(logit - largest) / total; }
};

// Returns the largest x of the warp to each of its threads. NaNs are ignored. All threads of the
// warp must call it.
__device__ inline float WarpMax(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

// Returns the SoftmaxSums of logits [experts] to each thread of the warp. `lane` is the thread's
// number in the warp. All threads of the warp must call it, and must see `logits` (__syncwarp after
// writing them).
__device__ inline SoftmaxSums SumsOfLogits(const float* logits, int64_t experts, int lane) {
  SoftmaxSums sums = {-INFINITY, 0.0f};
  for (int64_t e = lane; e < experts; e += kWarp) sums.largest = fmaxf(sums.largest, logits[e]);
  sums.largest = WarpMax(sums.largest);
  for (int64_t e = lane; e < experts; e += kWarp) sums.total += expf(logits[e] - sums.largest);
  sums.total = TeamSum<kWarp>(sums.total, nullptr);
  return sums;
}

// Returns 1 / (1 + exp(-x)).
__device__ inline float RouterSigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_EXPERTS_ROUTER_PARTS_H_

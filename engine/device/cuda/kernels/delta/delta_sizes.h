// The limits and the memory of the gated delta rule on the cuda device.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_DELTA_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_DELTA_SIZES_H_

#include <algorithm>
#include <cstdint>

#include "engine/device/delta_args.h"
#include "engine/device/kernel_sizes.h"

namespace megatrain::cuda {

// The largest key_dim that the kernels take.
inline constexpr int64_t kDeltaKeyDimMax = 256;

// The most bytes for what the backward pass keeps of key heads at once (DeltaKept, delta_parts.h),
// unless one key head needs more. No bit of the results depends on it.
inline constexpr int64_t kDeltaKeptBytesMax = int64_t{512} << 20;

// Returns the number of floats that are kept of a key head and its value heads: states and the
// gradients by them at the bounds of chunks, u and du, dq and dk.
inline int64_t DeltaFloatsOfKeyHead(const GatedDeltaShape& shape) {
  const int64_t group = shape.value_heads / shape.key_heads;
  const int64_t states = shape.tokens / kDeltaChunk * shape.key_dim * shape.value_dim;
  return 2 * group * (states + shape.tokens * shape.value_dim) + 2 * shape.tokens * shape.key_dim;
}

// Returns the number of key heads that the backward pass works on at once.
inline int64_t DeltaKeyHeadsAtOnce(const GatedDeltaShape& shape) {
  const int64_t bytes = DeltaFloatsOfKeyHead(shape) * int64_t{sizeof(float)};
  const int64_t fit = kDeltaKeptBytesMax / std::max<int64_t>(1, bytes);
  return std::min(std::max<int64_t>(1, fit), shape.key_heads);
}

// Returns the bytes of GatedDeltaBackwardArgs::workspace: what is kept of key heads, and
// DeltaKept::gate_sums.
inline int64_t GatedDeltaWorkspaceBytes(const GatedDeltaShape& shape) {
  return (DeltaKeyHeadsAtOnce(shape) * DeltaFloatsOfKeyHead(shape) +
          2 * shape.tokens * shape.value_heads) *
         int64_t{sizeof(float)};
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_DELTA_SIZES_H_

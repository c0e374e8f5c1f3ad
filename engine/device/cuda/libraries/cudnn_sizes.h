// The memory that cuDNN's attention takes, known without cuDNN and without a GPU.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_SIZES_H_

#include <bit>
#include <cstdint>

#include "engine/device/cuda/kernels/launchers.h"

namespace megatrain {

// What the gradient is given at most, at any length.
inline constexpr int64_t kCudnnWorkspaceBytesMax = int64_t{1} << 30;
inline constexpr int64_t kCudnnHeadDimMax = 256;
// cuDNN's own part of a workspace beside what grows with the shape: at most this.
inline constexpr int64_t kCudnnSlackBytes = int64_t{1} << 20;

// Of the deterministic gradient of so many documents and heads at once, as cuDNN 9.19 asks for on
// Hopper: 2 bytes a query and key, FP32 sums for the queries, and keys' and values' gradients in
// BF16 for each query head, of a length in whole tiles; beside it the statistics, which it wants
// packed, and what it is told of packed documents. Other versions are asked what they take before
// they are used.
constexpr int64_t CudnnGradientBytes(int64_t documents, int64_t heads, int64_t length,
                                     int64_t head_dim) {
  constexpr int64_t kTile = 128;
  const int64_t whole = (length + kTile - 1) / kTile * kTile;
  return documents * heads * whole * (2 * whole + 4 * (head_dim + 2)) + kCudnnSlackBytes;
}

// Bytes of workspace for the gradient of one document by blocks of `block` queries and keys
// (cudnn_blocks.h), with the `group` query heads of one key and value: statistics of all queries,
// FP32 sums of keys' and values' gradients and of a block of queries', a block's parts of all three
// in BF16, and cuDNN's own for a block.
constexpr int64_t CudnnBlockGradientBytes(int64_t tokens, int64_t group, int64_t block,
                                          int64_t head_dim) {
  return 4 * tokens * group + 2 * 4 * tokens * head_dim + (4 + 2) * block * group * head_dim +
         2 * 2 * block * head_dim + CudnnGradientBytes(1, group, block, head_dim);
}

// Of the forward pass over packed documents of so many tokens together: the statistics as cuDNN
// leaves them, what it is told of the documents, and its own.
constexpr int64_t CudnnPackedForwardBytes(int64_t tokens, int64_t heads) {
  return tokens * heads * int64_t{sizeof(float)} + kCudnnSlackBytes;
}

// The shortest length that graphs of packed documents are made for.
inline constexpr int64_t kCudnnLengthMin = 512;

// The length of the graph for packed documents of at most `length` tokens each. A graph takes half
// a second to build, so that lengths are few: powers of two; beyond 4096, where the gradient's
// workspace, which grows with the square, decides what can be taken, also the three quarters
// between two of them.
constexpr int64_t CudnnLengthBucket(int64_t length) {
  constexpr int64_t kCoarseMax = 4096;
  if (length <= kCudnnLengthMin) return kCudnnLengthMin;
  const int64_t power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
  if (power <= kCoarseMax) return power;
  const int64_t step = power / 8;
  return (length + step - 1) / step * step;
}

// Part of kCudnnSlackBytes.
static_assert(2 * cuda::kPackedIndexBytes <= kCudnnSlackBytes / 4);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_SIZES_H_

// The memory that cuDNN's attention takes, known without cuDNN and without a GPU.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDNN_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDNN_SIZES_H_

#include <cstdint>

namespace megatrain {

// What the gradient is given at most, at any length.
inline constexpr int64_t kCudnnWorkspaceBytesMax = int64_t{1} << 30;

// Of the deterministic gradient of one document for so many heads at once, as cuDNN 9.19 asks for
// on Hopper: 2 bytes a query and key, and FP32 sums for the queries, of a length in whole tiles;
// beside it the statistics, which it wants packed. Other versions are asked what they take before
// they are used.
constexpr int64_t CudnnGradientBytes(int64_t heads, int64_t length, int64_t head_dim) {
  constexpr int64_t kTile = 128, kSlack = int64_t{1} << 20;
  const int64_t whole = (length + kTile - 1) / kTile * kTile;
  return heads * whole * (2 * whole + 4 * (head_dim + 2)) + kSlack;
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDNN_SIZES_H_

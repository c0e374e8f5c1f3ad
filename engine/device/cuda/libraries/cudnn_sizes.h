// The limits of cuDNN's attention and the device memory that it takes, computed without cuDNN and
// without a GPU.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_SIZES_H_

#include <bit>
#include <cstdint>

#include "engine/device/cuda/kernels/launchers.h"

namespace megatrain {

// The largest workspace, in bytes, that a plan gives cuDNN's gradient.
inline constexpr int64_t kCudnnWorkspaceBytesMax = int64_t{1} << 30;
// The largest head_dim that cuDNN takes.
inline constexpr int64_t kCudnnHeadDimMax = 256;
// Returns true for the sizes of heads, in elements, for which cuDNN is used. Values that are wider
// than keys were not tried, so that cuDNN is not used for them.
constexpr bool CudnnTakesHeads(int64_t head_dim, int64_t value_dim) {
  return head_dim % 8 == 0 && value_dim % 8 == 0 && value_dim <= head_dim &&
         head_dim <= kCudnnHeadDimMax;
}
// An upper bound, in bytes, of the part of cuDNN's workspace that does not grow with the shape.
inline constexpr int64_t kCudnnSlackBytes = int64_t{1} << 20;

// Returns the bytes of workspace for the deterministic gradient of this many documents and query
// heads at once. cuDNN 9.19 on Hopper rounds `length` up to whole tiles. For each document and head
// it needs 2 bytes for each pair of a query and a key, one FP32 number for each query, and the
// gradients by keys and values in BF16. The result adds packed statistics (FP32) and the
// description of packed documents. If the graph of another version needs more, that graph is not
// used. Values have at most head_dim elements, here and below.
constexpr int64_t CudnnGradientBytes(int64_t documents, int64_t heads, int64_t length,
                                     int64_t head_dim) {
  constexpr int64_t kTile = 128;
  const int64_t whole = (length + kTile - 1) / kTile * kTile;
  return documents * heads * whole * (2 * whole + 4 * (head_dim + 2)) + kCudnnSlackBytes;
}

// Returns the bytes of workspace for the gradient of one document of `tokens` by blocks of `block`
// queries and keys (cudnn_blocks.h), with the `group` query heads of one head of keys and values.
// It holds the statistics of all queries, FP32 sums of the gradients by all keys and values and by
// a block of queries, a block's parts of all three in BF16, and cuDNN's own workspace for a block.
constexpr int64_t CudnnBlockGradientBytes(int64_t tokens, int64_t group, int64_t block,
                                          int64_t head_dim) {
  return 4 * tokens * group + 2 * 4 * tokens * head_dim + (4 + 2) * block * group * head_dim +
         2 * 2 * block * head_dim + CudnnGradientBytes(1, group, block, head_dim);
}

// Returns the bytes of workspace for the forward pass over packed documents that have `tokens`
// tokens together. It holds the statistics in cuDNN's layout, the description of the documents, and
// cuDNN's own workspace.
constexpr int64_t CudnnPackedForwardBytes(int64_t tokens, int64_t heads) {
  return tokens * heads * int64_t{sizeof(float)} + kCudnnSlackBytes;
}

// The shortest length, in tokens, of graphs for packed documents.
inline constexpr int64_t kCudnnLengthMin = 512;

// Returns the length of the graph for packed documents of at most `length` tokens. A graph takes
// half a second to build, so there are only a few lengths. Up to 4096 they are powers of two.
// Beyond that there are three more lengths between two powers, because the gradient's workspace,
// which grows with the square of the length, limits what can be taken. REQUIRES: length > 0.
constexpr int64_t CudnnLengthBucket(int64_t length) {
  constexpr int64_t kCoarseMax = 4096;
  if (length <= kCudnnLengthMin) return kCudnnLengthMin;
  const int64_t power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
  if (power <= kCoarseMax) return power;
  const int64_t step = power / 8;
  return (length + step - 1) / step * step;
}

// kCudnnSlackBytes includes the descriptions of packed documents.
static_assert(2 * cuda::kPackedIndexBytes <= kCudnnSlackBytes / 4);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_SIZES_H_

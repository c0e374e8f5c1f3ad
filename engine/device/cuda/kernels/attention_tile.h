// Helpers for both directions of attention that is computed in FP32: tiles of rows (tokens) of one
// head in shared memory, and products of two such tiles. A block has 16 x 16 threads. Thread (y, x)
// computes rows y, y + 16, ... and columns x, x + 16, ... of every product.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_ATTENTION_TILE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_ATTENTION_TILE_H_

#include <cstdint>

#include "engine/device/cuda/kernels/attention_shaping.h"
#include "engine/device/cuda/kernels/primitives.h"
#include "engine/device/kernel_args.h"

namespace megatrain::cuda {

// The threads of a block, per side and in all.
inline constexpr int kAttentionSide = 16;
inline constexpr int kAttentionThreads = kAttentionSide * kAttentionSide;

// The shape of tiles. kDim is the largest head size of queries, keys and values, and kTile the
// number of rows of a tile. The gradients' three tiles fit into the shared memory of every device
// from sm_80 on. With heads of 512 a block takes 97.3 KiB of the 99 KiB that every such device has.
template <int kDimMax, int kTileRows>
struct AttentionTileShape {
  static constexpr int kDim = kDimMax;
  static constexpr int kTile = kTileRows;
  static constexpr int kRows = kTile / kAttentionSide;    // rows of a tile for each thread
  static constexpr int kColumns = kDim / kAttentionSide;  // columns of a head for each thread
  static constexpr int kStride = kDim + 1;                // avoids bank conflicts by column
  static constexpr int kScoreStride = kTile + 1;
  static constexpr int kTileFloats = kTile * kStride;
  static constexpr int kScoreFloats = kTile * kScoreStride;
};

// Return the calling thread's y and x.
__device__ inline int ThreadRow() { return threadIdx.x / kAttentionSide; }
__device__ inline int ThreadColumn() { return threadIdx.x % kAttentionSide; }

// Loads rows [first, first + kTile) of a head into `tile`, multiplied by `scale`. Rows from `last`
// on become zeros. `head` is the head's first row in global memory, with rows of `dim` elements
// `stride` elements apart. All threads of the block must call it, and must meet (__syncthreads)
// before one reads the tile.
template <typename Shape, typename T>
__device__ void LoadTile(const T* head, int64_t stride, int64_t first, int64_t last, int dim,
                         float scale, float* tile) {
  for (int i = threadIdx.x; i < Shape::kTile * dim; i += kAttentionThreads) {
    const int row = i / dim, column = i % dim;
    tile[row * Shape::kStride + column] =
        first + row < last ? scale * ToFloat(head[(first + row) * stride + column]) : 0.0f;
  }
}

// Computes a product of two tiles over their `dim` columns: out[r][c] = sum over i of a[row r][i] *
// b[row c][i], where row r of `a` and row c of `b` are the thread's.
template <typename Shape>
__device__ void RowsByRows(const float* a, const float* b, int dim,
                           float (&out)[Shape::kRows][Shape::kRows]) {
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
#pragma unroll
    for (int c = 0; c < Shape::kRows; ++c) out[r][c] = 0;
  }
  const int y = ThreadRow(), x = ThreadColumn();
  for (int i = 0; i < dim; ++i) {
    float from_b[Shape::kRows];
#pragma unroll
    for (int c = 0; c < Shape::kRows; ++c) {
      from_b[c] = b[(x + c * kAttentionSide) * Shape::kStride + i];
    }
#pragma unroll
    for (int r = 0; r < Shape::kRows; ++r) {
      const float from_a = a[(y + r * kAttentionSide) * Shape::kStride + i];
#pragma unroll
      for (int c = 0; c < Shape::kRows; ++c) out[r][c] += from_a * from_b[c];
    }
  }
}

// Adds to out[r][c] the sum over s < kTile of scores[row r][s] * b[row s][column c]. If
// kTransposed, scores[s][row r] takes the place of scores[row r][s]. Row r and column c are the
// thread's, and columns from `dim` on are left out.
template <typename Shape, bool kTransposed>
__device__ void ScoresByRows(const float* scores, const float* b, int dim,
                             float (&out)[Shape::kRows][Shape::kColumns]) {
  const int y = ThreadRow(), x = ThreadColumn();
  for (int s = 0; s < Shape::kTile; ++s) {
    float score[Shape::kRows];
#pragma unroll
    for (int r = 0; r < Shape::kRows; ++r) {
      const int row = y + r * kAttentionSide;
      score[r] = kTransposed ? scores[s * Shape::kScoreStride + row]
                             : scores[row * Shape::kScoreStride + s];
    }
#pragma unroll
    for (int c = 0; c < Shape::kColumns; ++c) {
      const int column = x + c * kAttentionSide;
      if (column >= dim) continue;
      const float from_b = b[s * Shape::kStride + column];
#pragma unroll
      for (int r = 0; r < Shape::kRows; ++r) out[r][c] += score[r] * from_b;
    }
  }
}

template <typename Shape>
__device__ void ClearSums(float (&sums)[Shape::kRows][Shape::kColumns]) {
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
#pragma unroll
    for (int c = 0; c < Shape::kColumns; ++c) sums[r][c] = 0;
  }
}

// Calls run.template operator()<Shape>() with the smallest shape for LargestDim(args), and returns
// its result. Returns kInvalidValue if head_dim or value_dim exceeds kAttentionHeadDimMax.
template <typename Run>
int WithAttentionTileShape(const AttentionArgs& args, const Run& run) {
  const int64_t dim = LargestDim(args);
  if (dim <= 64) return run.template operator()<AttentionTileShape<64, 32>>();
  if (dim <= 128) return run.template operator()<AttentionTileShape<128, 32>>();
  if (dim <= 256) return run.template operator()<AttentionTileShape<256, 16>>();
  if (dim <= 512) return run.template operator()<AttentionTileShape<512, 16>>();
  return kInvalidValue;
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_ATTENTION_TILE_H_

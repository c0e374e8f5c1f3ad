// Helpers for both directions of attention on tensor cores. A block of four warps handles 64 rows
// of one head, 16 for each warp. It iterates over tiles of other rows, which are copied to shared
// memory while the warps compute. The stride of rows in shared memory is 16 bytes longer than a
// row, which avoids bank conflicts.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_TENSOR_ATTENTION_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_TENSOR_ATTENTION_H_

#include <cstdint>

#include "engine/device/cuda/kernels/attention_shaping.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"
#include "engine/device/cuda/kernels/tensor_core.h"
#include "engine/device/kernel_args.h"

namespace megatrain::cuda {

inline constexpr int kTensorWarps = 4;
inline constexpr int kTensorThreads = kTensorWarps * kWarp;
inline constexpr int kWarpRows = 16;

inline constexpr float kLog2OfE = 1.44269504088896341f;
inline constexpr float kLnOf2 = 0.693147180559945309f;

// The shape of tiles. A kernel has two: one for queries and keys, one for values and outputs. kDim
// is the largest head size; columns beyond a smaller one are zeros. kTile is the number of rows of
// a tile, the same in both shapes.
template <int kDimMax, int kTileRows>
struct TensorShape {
  static constexpr int kDim = kDimMax;
  static constexpr int kTile = kTileRows;
  static constexpr int kRows = kTensorWarps * kWarpRows;
  static constexpr int kStride = kDim + 8;
  static constexpr int kRowsElements = kRows * kStride;
  static constexpr int kTileElements = kTile * kStride;
  // The results of products of a warp's rows with a tile's rows (Scores) and with a head's columns
  // (Sums).
  using Scores = float[kTile / 8][4];
  using Sums = float[kDim / 8][4];
};

// Return true if these kernels are switched on and can take the operands. The kernels move operands
// in units of 16 bytes.
inline bool FitsTensorCores(const Queue& queue, const AttentionArgs& args) {
  return queue.paths.tensor_core_attention && args.dtype == DType::kBF16 &&
         args.head_dim % 8 == 0 && args.head_dim <= kTensorHeadDimMax && args.value_dim % 8 == 0 &&
         args.value_dim <= kTensorHeadDimMax &&
         Aligned({args.q, args.k, args.v, args.out},
                 {args.q_stride * 2, args.k_stride * 2, args.v_stride * 2});
}
inline bool FitsTensorCores(const Queue& queue, const AttentionBackwardArgs& args) {
  return FitsTensorCores(queue, args.forward) &&
         Aligned({args.dout, args.dq, args.dk, args.dv},
                 {args.dq_stride * 2, args.dk_stride * 2, args.dv_stride * 2});
}

// Returns true for the sizes of latent attention (DeepSeek-V3 has heads of 192 and 128), which have
// kernels of their own, because the next larger ones would compute about 1.6 times as much.
inline bool HasNarrowValues(const AttentionArgs& args) {
  return args.head_dim > 128 && args.head_dim <= 192 && args.value_dim <= 128;
}

// Launch the forward pass and the gradients. REQUIRES: FitsTensorCores(queue, args).
int TensorAttention(const Queue& queue, const AttentionArgs& args);
// `delta` is [heads, tokens]: rowsum(dO * O).
int TensorAttentionGradients(const Queue& queue, const AttentionBackwardArgs& args,
                             const float* delta);

// Begins to copy rows [first, first + kRows) of a head to `tile`. Rows from `last` on become zeros.
// `thread` is the caller's number among kTensorThreads.
template <typename Shape, int kRows>
__device__ void CopyRows(const Bf16* head, int64_t stride, int64_t first, int64_t last, int dim,
                         Bf16* tile, int thread = static_cast<int>(threadIdx.x)) {
  constexpr int kChunks = Shape::kDim / 8;
  if constexpr (kTensorThreads % kChunks == 0) {
    // A thread has one column: next to nothing is computed for a copy.
    constexpr int kStep = kTensorThreads / kChunks;
    const int row = thread / kChunks, column = thread % kChunks * 8;
    const int64_t left = last - first;
    const int rows = column >= dim ? 0 : left < kRows ? static_cast<int>(left) : kRows;
    const Bf16* from = head + (first + row) * stride + column;
    Bf16* to = tile + row * Shape::kStride + column;
#pragma unroll
    for (int r = 0; r < kRows; r += kStep) {
      const bool there = row + r < rows;
      CopyAsync(to + r * Shape::kStride, there ? from : head, there);
      from += kStep * stride;
    }
  } else {
    for (int i = thread; i < kRows * kChunks; i += kTensorThreads) {
      const int row = i / kChunks, column = i % kChunks * 8;
      const bool there = first + row < last && column < dim;
      CopyAsync(tile + row * Shape::kStride + column,
                there ? head + (first + row) * stride + column : head, there);
    }
  }
}

// Returns the address that this lane passes to LoadMatrices for rows [row, row + 16) and columns
// [column, column + 16) of a tile. LoadMatrices then gives the fragment `a`. LoadMatricesTransposed
// reads the tile as [k, n] and gives two fragments `b`.
template <typename Shape>
__device__ const Bf16* FragmentRow(const Bf16* tile, int row, int column) {
  const int lane = threadIdx.x % kWarp;
  return tile + (row + lane % 16) * Shape::kStride + column + lane / 16 * 8;
}
// Returns that address for two fragments `b` of a tile whose rows are n and whose columns are k.
template <typename Shape>
__device__ const Bf16* ColumnFragmentRow(const Bf16* tile, int row, int column) {
  const int lane = threadIdx.x % kWarp;
  return tile + (row + lane % 8 + lane / 16 * 8) * Shape::kStride + column + lane / 8 % 2 * 8;
}

// Computes out = rows [row, row + 16) of `a` times all rows of the tile `b`, over the head's size.
template <typename Shape>
__device__ void RowsByTile(const Bf16* a, int row, const Bf16* b, typename Shape::Scores& out) {
#pragma unroll
  for (int n = 0; n < Shape::kTile / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[n][i] = 0;
  }
#pragma unroll
  for (int k = 0; k < Shape::kDim; k += 16) {
    uint32_t rows[4];
    LoadMatrices(FragmentRow<Shape>(a, row, k), rows);
#pragma unroll
    for (int n = 0; n < Shape::kTile; n += 16) {
      uint32_t columns[4];
      LoadMatrices(ColumnFragmentRow<Shape>(b, n, k), columns);
      MultiplyBf16(rows, columns[0], columns[1], out[n / 8]);
      MultiplyBf16(rows, columns[2], columns[3], out[n / 8 + 1]);
    }
  }
}

// Computes out += scores, rounded to BF16, times the tile `b`, over the tile's rows. The result of
// one product has the register layout that the next one takes (Dao 2023).
template <typename Shape>
__device__ void ScoresByTile(const typename Shape::Scores& scores, const Bf16* b,
                             typename Shape::Sums& out) {
#pragma unroll
  for (int k = 0; k < Shape::kTile; k += 16) {
    const float(&left)[4] = scores[k / 8];
    const float(&right)[4] = scores[k / 8 + 1];
    const uint32_t rows[4] = {PackBf16(left[0], left[1]), PackBf16(left[2], left[3]),
                              PackBf16(right[0], right[1]), PackBf16(right[2], right[3])};
#pragma unroll
    for (int n = 0; n < Shape::kDim; n += 16) {
      uint32_t columns[4];
      LoadMatricesTransposed(FragmentRow<Shape>(b, k, n), columns);
      MultiplyBf16(rows, columns[0], columns[1], out[n / 8]);
      MultiplyBf16(rows, columns[2], columns[3], out[n / 8 + 1]);
    }
  }
}

// Sets to -infinity the scores of a tile whose column is outside [from, to). The tile's columns are
// counted from `first`. from[0] and to[0] are those of row g, from[1] and to[1] those of row g + 8
// (tensor_core.h).
template <typename Shape>
__device__ void Mask(int64_t first, const int64_t (&from)[2], const int64_t (&to)[2],
                     typename Shape::Scores& s) {
#pragma unroll
  for (int n = 0; n < Shape::kTile / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t column = first + n * 8 + threadIdx.x % 4 * 2 + i % 2;
      if (column < from[i / 2] || column >= to[i / 2]) s[n][i] = -INFINITY;
    }
  }
}

// Replaces scores by tanh(factor * score). Masking comes after it.
template <typename Shape>
__device__ void Cap(float factor, typename Shape::Scores& s) {
#pragma unroll
  for (int n = 0; n < Shape::kTile / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = Tanh(factor * s[n][i]);
  }
}
// Returns Cap's derivative by factor * score from its result, and 0 for a masked score.
__device__ inline float CapSlope(float capped) { return fmaxf(1.0f - capped * capped, 0.0f); }

// The factors that turn a product q.k into an exponent to base 2: exponent * product or, with a
// softcap, exponent * tanh(cap * product).
struct ScoreFactors {
  float exponent;
  float cap;  // of Cap; unused without a softcap
};
__device__ inline ScoreFactors FactorsOf(const AttentionArgs& args) {
  const float softcap = args.shaping.softcap;
  return softcap > 0 ? ScoreFactors{softcap * kLog2OfE, args.scale / softcap}
                     : ScoreFactors{args.scale * kLog2OfE, 0.0f};
}

template <typename Shape>
__device__ void ClearSums(typename Shape::Sums& sums) {
#pragma unroll
  for (int n = 0; n < Shape::kDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = 0;
  }
}

// Writes the warp's rows [first + row, first + row + 16) of a head, up to `last`. Row g is
// sums[..][0] and [1] times factors[0]; row g + 8 is sums[..][2] and [3] times factors[1]. The rows
// pass through `tile`, which only this warp uses and which has 16 rows.
template <typename Shape>
__device__ void StoreRows(const typename Shape::Sums& sums, const float (&factors)[2], Bf16* tile,
                          int row, int64_t first, int64_t last, int dim, int64_t stride,
                          Bf16* head) {
  const int lane = threadIdx.x % kWarp;
  __syncwarp();  // the rows have been read
#pragma unroll
  for (int n = 0; n < Shape::kDim / 8; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t pair = PackBf16(sums[n][2 * r] * factors[r], sums[n][2 * r + 1] * factors[r]);
      *reinterpret_cast<uint32_t*>(tile + (lane / 4 + 8 * r) * Shape::kStride + n * 8 +
                                   lane % 4 * 2) = pair;
    }
  }
  __syncwarp();
  constexpr int kChunks = Shape::kDim / 8;
  for (int i = lane; i < kWarpRows * kChunks; i += kWarp) {
    const int r = i / kChunks, column = i % kChunks * 8;
    if (first + row + r >= last || column >= dim) continue;
    StorePack(*reinterpret_cast<const Pack<Bf16, 8>*>(tile + r * Shape::kStride + column),
              head + (first + row + r) * stride + column);
  }
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_TENSOR_ATTENTION_H_

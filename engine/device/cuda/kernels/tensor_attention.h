// Helpers for both directions of BF16 attention on tensor cores (tensor_core.h). Four warps compute
// 64 rows (tokens) of one head, 16 for each warp. They iterate over tiles of other rows, which are
// copied to shared memory while the warps compute. A block has four warps. For dK and dV it may
// have eight: each half goes over every other tile for the same 64 rows, and their sums are added.
// The stride of rows in shared memory is 16 bytes longer than a row, which avoids bank conflicts.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_TENSOR_ATTENTION_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_TENSOR_ATTENTION_H_

#include <cstdint>

#include "engine/device/cuda/kernels/attention_shaping.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"
#include "engine/device/cuda/kernels/tensor_core.h"
#include "engine/device/kernel_args.h"

namespace megatrain::cuda {

inline constexpr int kTensorWarps = 4;  // the warps for 64 rows
inline constexpr int kTensorThreads = kTensorWarps * kWarp;
inline constexpr int kWarpRows = 16;  // the rows of a warp

inline constexpr float kLog2OfE = 1.44269504088896341f;
inline constexpr float kLnOf2 = 0.693147180559945309f;

// The shape of a block's rows and of tiles in shared memory. A kernel has two shapes, one for
// queries and keys and one for values and outputs. kDim is the largest head size. The columns
// beyond a smaller head size are zeros. kTile is the number of rows of a tile, the same in both
// shapes.
template <int kDimMax, int kTileRows>
struct TensorShape {
  static constexpr int kDim = kDimMax;
  static constexpr int kTile = kTileRows;
  static constexpr int kRows = kTensorWarps * kWarpRows;
  static constexpr int kStride = kDim + 8;
  static constexpr int kRowsElements = kRows * kStride;
  static constexpr int kTileElements = kTile * kStride;
  // A lane's part of the results of a warp. Scores are the products of the warp's 16 rows with a
  // tile's rows, [16, kTile]. Sums have a column for each column of a head, [16, kDim]. The first
  // index counts blocks of 8 columns, and the second is that of `d` in tensor_core.h.
  using Scores = float[kTile / 8][4];
  using Sums = float[kDim / 8][4];
};

// Both return true if these kernels are switched on and can take the operands. The kernels move
// operands in units of 16 bytes.
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

// Returns true for head sizes as latent attention has them (192 for queries and keys, 128 for
// values in DeepSeek-V3). They have kernels of their own, because the kernels for the next larger
// head sizes would compute about 1.6 times as much.
inline bool HasNarrowValues(const AttentionArgs& args) {
  return args.head_dim > 128 && args.head_dim <= 192 && args.value_dim <= 128;
}

// Queues the forward pass. Returns a cudaError_t. REQUIRES: FitsTensorCores(queue, args).
int TensorAttention(const Queue& queue, const AttentionArgs& args);
// Queues the computation of dq, dk and dv. Returns a cudaError_t. `delta` is rowsum(dO * O), FP32
// [heads, tokens] in device memory. REQUIRES: FitsTensorCores(queue, args).
int TensorAttentionGradients(const Queue& queue, const AttentionBackwardArgs& args,
                             const float* delta);

// Begins to copy rows [first, first + kRows) of a head to `tile` in shared memory. Rows from `last`
// on and columns from `dim` on become zeros. `head` is the head's first row in global memory, and
// `stride` the distance between its rows in elements. All kTensorThreads threads must call it, and
// `thread` is the caller's number among them. Use CommitCopies and WaitForCopies after it.
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
// [column, column + 16) of a tile. LoadMatrices then gives the fragment a. LoadMatricesTransposed
// takes the tile for a right operand [k, n] and gives two fragments b, one for the first 8 of these
// columns and one for the last 8.
template <typename Shape>
__device__ const Bf16* FragmentRow(const Bf16* tile, int row, int column) {
  const int lane = threadIdx.x % kWarp;
  return tile + (row + lane % 16) * Shape::kStride + column + lane / 16 * 8;
}
// Returns the address that this lane passes to LoadMatrices for two fragments b of a tile that
// holds the right operand transposed, as [n, k]. `row` counts n, and `column` counts k.
template <typename Shape>
__device__ const Bf16* ColumnFragmentRow(const Bf16* tile, int row, int column) {
  const int lane = threadIdx.x % kWarp;
  return tile + (row + lane % 8 + lane / 16 * 8) * Shape::kStride + column + lane / 8 % 2 * 8;
}

// Computes out = the products of rows [row, row + 16) of `a` with all rows of the tile `b`, summed
// over kDim columns. All lanes of the warp must call it.
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

// Computes out += the product of `scores`, rounded to BF16, with the tile `b`, summed over the
// tile's rows. All lanes of the warp must call it. `scores` has the layout of a result in
// registers, which is also that of a left operand (Dao 2023).
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

// Sets the scores whose column is outside [from, to) to -infinity. The tile's first column has the
// number `first`. from[0] and to[0] are for row g, from[1] and to[1] for row g + 8 (tensor_core.h).
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

// Replaces each score by tanh(factor * score). Call Mask after it, not before.
template <typename Shape>
__device__ void Cap(float factor, typename Shape::Scores& s) {
#pragma unroll
  for (int n = 0; n < Shape::kTile / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = Tanh(factor * s[n][i]);
  }
}
// Returns the derivative of tanh(factor * score) by factor * score. `capped` is the result of Cap.
// For a masked score (-infinity) it returns 0.
__device__ inline float CapSlope(float capped) { return fmaxf(1.0f - capped * capped, 0.0f); }

// The factors that turn a product q.k into an exponent to base 2: exponent * product or, with a
// softcap, exponent * tanh(cap * product).
struct ScoreFactors {
  float exponent;
  float cap;  // the factor for Cap; not used without a softcap
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

// Writes the warp's rows [first + row, first + row + 16) of a head to global memory, in BF16,
// except rows from `last` on and columns from `dim` on. Row g is sums[..][0] and [1] times
// factors[0]. Row g + 8 is sums[..][2] and [3] times factors[1]. The rows pass through `tile` in
// shared memory, which has 16 rows and which only this warp uses. All lanes of the warp must call
// it.
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

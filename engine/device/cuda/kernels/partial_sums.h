// Sums over many rows, one for each column. Each block writes a row of partial sums. One more
// kernel adds those rows in an order that depends on the number of blocks alone.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_

#include <cstdint>

#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

// Returns the number of blocks that may write partial sums of `n` columns for `items` rows. It
// depends on the shapes and on FastPaths::split_sums alone, so that the order of summation does
// too. It is at most 1 if split_sums is off, and 0 if there are no items or a row of partial sums
// does not fit into kScratchBytes. REQUIRES: n > 0.
int64_t PartialSumBlocks(const Queue& queue, int64_t items, int64_t n);

// Queues the kernel that adds the rows of `partial` [blocks, n] to `sums` [n]. Without `add` it
// overwrites `sums`. Returns a cudaError_t.
int AddPartialSums(const Queue& queue, const float* partial, int64_t blocks, int64_t n, bool add,
                   float* sums);

// The number of floats of shared memory that ColumnSums needs.
template <int kCount, int kWarps>
inline constexpr int kColumnSumsFloats = kCount* kWarps* kWarp;

// Sums kCount columns for each lane over `rows` rows. `x` points to the lane's first column in the
// first row; rows are `stride` elements apart. `there` is false for a lane without columns. Only
// the block's first warp receives the sums. All kWarps warps of the block must call it; `shared`
// has kColumnSumsFloats. Each warp takes every kWarps-th row, in packs, and loads several rows
// before it adds the first.
template <int kWarps, typename T, int kCount>
__device__ void ColumnSums(const T* x, int64_t rows, int64_t stride, bool there, float* shared,
                           float (&sums)[kCount]) {
  constexpr int kAtOnce = sizeof(T) * kCount >= 16 ? 4 : 8;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kCount; ++j) sums[j] = 0;
  for (int64_t first = warp; first < rows; first += kAtOnce * kWarps) {
    Pack<T, kCount> held[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t row = first + k * kWarps;
      held[k] = LoadPack<T, kCount>(x + row * stride, there && row < rows);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      float v[kCount];
      Widen(held[k], v);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sums[j] += v[j];
    }
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) shared[(warp * kCount + j) * kWarp + lane] = sums[j];
  __syncthreads();
  if (warp == 0) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) sums[j] = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) sums[j] += shared[(w * kCount + j) * kWarp + lane];
    }
  }
  __syncthreads();  // shared may be used again
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_

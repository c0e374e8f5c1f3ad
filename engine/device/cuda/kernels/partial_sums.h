// Computes sums over many rows, one for each column. Each block of a kernel writes a row of partial
// sums. A second kernel adds these rows in an order that depends on the number of blocks alone.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_

#include <cstdint>

#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

// Returns the greatest number of blocks that may write partial sums of `n` columns for `items`
// rows. It depends on the two numbers and on FastPaths::split_sums alone, and therefore the order
// of summation does too. It is at most 1 if split_sums is off. It is 0 if `items` is 0 or if a row
// of partial sums does not fit into kScratchBytes. REQUIRES: n > 0.
int64_t PartialSumBlocks(const Queue& queue, int64_t items, int64_t n);

// Queues the kernel that adds up the rows of `partial` [blocks, n], in device memory. It adds the
// result to `sums` [n] or, if `add` is false, overwrites `sums` with it. With 0 blocks the result
// is 0. Returns a cudaError_t. REQUIRES: n > 0.
int AddPartialSums(const Queue& queue, const float* partial, int64_t blocks, int64_t n, bool add,
                   float* sums);

// The number of floats of shared memory that ColumnSums needs.
template <int kCount, int kWarps>
inline constexpr int kColumnSumsFloats = kCount* kWarps* kWarp;

// Computes the sums of kCount columns for each lane over `rows` rows. `x` points to the lane's
// first column in the first row. Rows are `stride` elements apart. `there` is false for a lane
// without columns. Only the block's first warp receives the sums. Each warp takes every kWarps-th
// row, in packs, and loads several rows before it adds the first. `shared` has
// kColumnSumsFloats<kCount, kWarps>. REQUIRES: all kWarps warps of the block call it, with the same
// columns for a lane of each warp, and packs are aligned (LoadPack).
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

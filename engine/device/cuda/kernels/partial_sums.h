// Sums over many rows, one a column: blocks leave a row of partial sums each, which one kernel adds
// in an order that depends on their number alone.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_

#include <cstdint>

#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

// How many blocks may leave partial sums of n columns: depends on the shapes alone, so that the
// order of the sum does too. 0: a row of them does not fit kScratchBytes. 1 where sums are not to
// be split.
int64_t PartialSumBlocks(const Queue& queue, int64_t items, int64_t n);

// sums[c] += partial[0][c] + partial[1][c] + ...; partial is [blocks, n]. Without `add` from zero.
int AddPartialSums(const Queue& queue, const float* partial, int64_t blocks, int64_t n, bool add,
                   float* sums);

// The sums of kCount columns a lane over `rows` rows that begin at `x`, in the block's first warp.
// A warp has every kWarps-th row, in packs, and asks for several before it adds the first. All
// threads of the block call it. `shared`: kColumnSumsFloats<kCount, kWarps>. A lane without columns
// is not `there`.
template <int kCount, int kWarps>
inline constexpr int kColumnSumsFloats = kCount* kWarps* kWarp;

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

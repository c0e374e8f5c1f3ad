// Sums over many rows, one a column: blocks leave a row of partial sums each, which one kernel adds
// in the order of the blocks.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_

#include <cstdint>

namespace megatrain::cuda {

// How many blocks may leave partial sums of n columns: depends on the shapes alone, so that the
// order of the sum does too. 0: a row of them does not fit kScratchBytes.
int64_t PartialSumBlocks(int64_t items, int64_t n);

// sums[c] += partial[0][c] + partial[1][c] + ...; partial is [blocks, n].
int AddPartialSums(void* stream, const float* partial, int64_t blocks, int64_t n, float* sums);

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_H_

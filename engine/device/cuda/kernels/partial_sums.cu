#include <algorithm>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

// Two blocks of 256 threads for nearly each of an H200's 132 multiprocessors: with what their
// threads hold, enough to keep its memory busy. On every card the same: the order of sums is.
constexpr int64_t kBlocksMax = 256;
// With this many warps a thread has at most eight rows, which it loads all at once.
constexpr int kWarps = 32;

__global__ void __launch_bounds__(kWarps* kWarp)
    AddPartialSumsKernel(const float* partial, int64_t blocks, int64_t n, bool add, float* sums) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x % kWarp;
  float sum[1];
  ColumnSums<kWarps>(partial + column, blocks, n, column < n, SharedMemory<float>(), sum);
  if (threadIdx.x < kWarp && column < n) sums[column] = (add ? sums[column] : 0.0f) + sum[0];
}

}  // namespace

int64_t PartialSumBlocks(const Queue& queue, int64_t items, int64_t n) {
  const int64_t fit = kScratchBytes / (n * static_cast<int64_t>(sizeof(float)));
  return std::min({queue.paths.split_sums ? kBlocksMax : 1, fit, items});
}

int AddPartialSums(const Queue& queue, const float* partial, int64_t blocks, int64_t n, bool add,
                   float* sums) {
  return Launch(AddPartialSumsKernel, Grid(CeilDiv(n, kWarp)), kWarps * kWarp,
                kColumnSumsFloats<1, kWarps> * int{sizeof(float)}, queue, partial, blocks, n, add,
                sums);
}

}  // namespace megatrain::cuda

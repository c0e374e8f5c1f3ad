#include <algorithm>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kBlocksMax = 256;

__global__ void AddPartialSumsKernel(const float* partial, int64_t blocks, int64_t n, float* sums) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= n) return;
  float sum = 0;
  for (int64_t block = 0; block < blocks; ++block) sum += partial[block * n + column];
  sums[column] += sum;
}

}  // namespace

int64_t PartialSumBlocks(int64_t items, int64_t n) {
  const int64_t fit = kScratchBytes / (n * static_cast<int64_t>(sizeof(float)));
  return std::min({kBlocksMax, fit, items});
}

int AddPartialSums(void* stream, const float* partial, int64_t blocks, int64_t n, float* sums) {
  return Launch(AddPartialSumsKernel, Grid(CeilDiv(n, kThreads)), kThreads, 0, stream, partial,
                blocks, n, sums);
}

}  // namespace megatrain::cuda

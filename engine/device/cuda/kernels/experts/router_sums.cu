// The sums of routers over tokens, for the auxiliary loss. Each block adds up the probabilities of
// its tokens, a thread an expert, in a row of the scratch memory. One more kernel adds those rows
// in their order.
#include "engine/device/cuda/kernels/experts/router_parts.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Tokens whose SoftmaxSums a block has in shared memory at once.
constexpr int kBlockTokens = 64;

// Shared: SoftmaxSums [kBlockTokens].
__global__ void __launch_bounds__(kThreads)
    RouterSumsKernel(RouterSumsArgs args, int64_t tokens_each, double* partial) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  SoftmaxSums* const sums = SharedMemory<SoftmaxSums>();
  const int64_t first = blockIdx.x * tokens_each;
  const int64_t last = args.tokens - first < tokens_each ? args.tokens : first + tokens_each;
  double* const mine = partial + blockIdx.x * args.experts;
  for (int64_t begin = first; begin < last; begin += kBlockTokens) {
    const int count = static_cast<int>(last - begin < kBlockTokens ? last - begin : kBlockTokens);
    const float* const logits = args.logits + begin * args.experts;
    for (int i = warp; i < count; i += kWarps) {
      const SoftmaxSums of_token = SumsOfLogits(logits + i * args.experts, args.experts, lane);
      if (lane == 0) sums[i] = of_token;
    }
    __syncthreads();
    for (int64_t e = threadIdx.x; e < args.experts; e += kThreads) {
      double sum = begin == first ? 0.0 : mine[e];
      for (int i = 0; i < count; ++i) sum += sums[i].Probability(logits[i * args.experts + e]);
      mine[e] = sum;
    }
    __syncthreads();  // shared is written again
  }
}

__global__ void __launch_bounds__(kThreads)
    AddRouterSumsKernel(const double* partial, int64_t blocks, int64_t experts, double* to) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= experts) return;
  double sum = 0;
#pragma unroll 8
  for (int64_t block = 0; block < blocks; ++block) sum += partial[block * experts + e];
  to[e] += sum;
}

}  // namespace

int RouterSums(const Queue& queue, const RouterSumsArgs& args, void* scratch) {
  if (args.tokens == 0) return 0;
  constexpr int64_t kFloats = sizeof(double) / sizeof(float);
  const int64_t blocks_max =
      PartialSumBlocks(queue, CeilDiv(args.tokens, kWarps), args.experts * kFloats);
  if (blocks_max == 0) return kInvalidValue;
  const int64_t tokens_each = CeilDiv(args.tokens, blocks_max);
  const int64_t blocks = CeilDiv(args.tokens, tokens_each);
  double* const partial = static_cast<double*>(scratch);
  const int error =
      Launch(RouterSumsKernel, Grid(blocks), kThreads, kBlockTokens * int{sizeof(SoftmaxSums)},
             queue, args, tokens_each, partial);
  if (error != 0) return error;
  return Launch(AddRouterSumsKernel, Grid(CeilDiv(args.experts, kThreads)), kThreads, 0, queue,
                static_cast<const double*>(partial), blocks, args.experts, args.probability);
}

}  // namespace megatrain::cuda

// The loss of pairs of answers, and the weights of their tokens: a block a pair.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"
#include "engine/device/preference_term.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// The sum over the block, for every thread. `shared` has kWarps and is not used again.
__device__ inline double SumOverBlock(double x, double* shared) {
  x = WarpSum(x);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp];
  return sum;
}

__global__ void __launch_bounds__(kThreads) PreferenceLossKernel(PreferenceLossArgs args) {
  const int64_t pair = blockIdx.x;
  const int32_t* const bounds = args.bounds + 4 * pair;
  double* const shared = SharedMemory<double>();
  double logps[2], tokens[2];
  for (int side = 0; side < 2; ++side) {
    double logp = 0, count = 0;
    for (int64_t t = bounds[2 * side] + static_cast<int64_t>(threadIdx.x); t < bounds[2 * side + 1];
         t += kThreads) {
      if (args.labels[t] < 0) continue;
      logp -= args.losses[t];
      count += 1;
    }
    logps[side] = SumOverBlock(logp, shared + 2 * side * kWarps);
    tokens[side] = SumOverBlock(count, shared + (2 * side + 1) * kWarps);
  }
  const double* const reference = args.reference + 2 * pair;
  const PreferenceTerm term = PreferenceTermOf(args.objective, logps[0] - reference[0],
                                               logps[1] - reference[1], tokens[0], tokens[1]);
  if (threadIdx.x == 0) {
    args.results[pair].chosen_logp = logps[0];
    args.results[pair].rejected_logp = logps[1];
    args.results[pair].loss = term.loss;
  }
  if (args.weights == nullptr) return;
  // A token's loss is minus its log-probability.
  for (int side = 0; side < 2; ++side) {
    const float weight =
        static_cast<float>(-(side == 0 ? term.by_chosen : term.by_rejected) * args.scale);
    for (int64_t t = bounds[2 * side] + static_cast<int64_t>(threadIdx.x); t < bounds[2 * side + 1];
         t += kThreads) {
      args.weights[t] = weight;
    }
  }
}

}  // namespace

int PreferenceLoss(const Queue& queue, const PreferenceLossArgs& args) {
  if (args.pairs == 0) return 0;
  return Launch(PreferenceLossKernel, Grid(args.pairs), kThreads, 4 * kWarps * int{sizeof(double)},
                queue, args);
}

}  // namespace megatrain::cuda

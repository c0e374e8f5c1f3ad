// Cross-entropy of whole rows of logits, the gradient written over them: a block a row.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
// Logits that a thread holds while the gradient takes their place.
constexpr int kHeld = 4;

// sum(exp(x)) = total * exp(largest).
struct Exponentials {
  float largest, total;
};

__device__ inline Exponentials Join(Exponentials a, Exponentials b) {
  const float largest = fmaxf(a.largest, b.largest);
  // Of nothing at all: exp(-inf - -inf) is no number.
  if (largest == -INFINITY) return {largest, 0.0f};
  return {largest, a.total * expf(a.largest - largest) + b.total * expf(b.largest - largest)};
}

__device__ inline Exponentials JoinBlock(Exponentials x, Exponentials* shared) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = Join(x, {__shfl_xor_sync(~0u, x.largest, step), __shfl_xor_sync(~0u, x.total, step)});
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  Exponentials all = shared[0];
  for (int warp = 1; warp < kWarps; ++warp) all = Join(all, shared[warp]);
  return all;
}

template <typename T>
__global__ void CrossEntropyKernel(CrossEntropyArgs args) {
  const int64_t token = blockIdx.x;
  float* const row = args.logits + token * args.logits_stride;
  const int32_t label = args.labels[token];
  Exponentials sum = {-INFINITY, 0.0f};
  bool nan = false;
  for (int64_t i = threadIdx.x; i < args.vocabulary; i += kThreads) {
    const float x = row[i];
    nan = nan || x != x;
    if (x > sum.largest) {
      sum.total = sum.total * expf(sum.largest - x) + 1.0f;
      sum.largest = x;
    } else {
      sum.total += expf(x - sum.largest);
    }
  }
  // A comparison with a NaN is false, and one alone would go unseen.
  if (nan) sum.total = NAN;
  sum = JoinBlock(sum, SharedMemory<Exponentials>());
  const float lse = sum.largest + logf(sum.total);
  if (threadIdx.x == 0) args.losses[token] = label < 0 ? 0.0f : lse - row[label];
  if (args.loss_only) return;
  __syncthreads();  // row[label] is read
  // The gradient may be shorter than the logit it replaces, so that it lands on logits further to
  // the front: each chunk is read by all before it is written, and those before it are done with.
  T* const out = reinterpret_cast<T*>(row);
  for (int64_t first = 0; first < args.vocabulary; first += kThreads * kHeld) {
    float held[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int64_t i = first + j * kThreads + threadIdx.x;
      held[j] = i < args.vocabulary ? row[i] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int64_t i = first + j * kThreads + threadIdx.x;
      if (i >= args.vocabulary) continue;
      const float p = expf(held[j] - lse) - (i == label ? 1.0f : 0.0f);
      out[i] = FromFloat<T>(label < 0 ? 0.0f : p * args.scale);
    }
  }
}

}  // namespace

int CrossEntropy(void* stream, const CrossEntropyArgs& args) {
  if (args.tokens == 0) return 0;
  const int shared = kWarps * int{sizeof(Exponentials)};
  return args.dtype == DType::kF32
             ? Launch(CrossEntropyKernel<float>, Grid(args.tokens), kThreads, shared, stream, args)
             : Launch(CrossEntropyKernel<Bf16>, Grid(args.tokens), kThreads, shared, stream, args);
}

}  // namespace megatrain::cuda

// Cross-entropy of whole rows of logits, the gradient written over them: a block a row.
#include <cassert>
#include <limits>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
// Packs of logits that a thread asks for before it uses one, and holds while the gradient takes
// their place.
constexpr int kHeld = 4;

// sum(exp(x)) = total * exp(largest). `largest` begins as the lowest float, not as -inf: of that
// and a logit that is -inf the difference would be no number.
constexpr float kLowest = std::numeric_limits<float>::lowest();
struct Exponentials {
  float largest, total;
};

__device__ inline Exponentials Join(Exponentials a, Exponentials b) {
  const float largest = fmaxf(a.largest, b.largest);
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

template <typename T, int kCount, bool kCapped>
__global__ void __launch_bounds__(kThreads, 2) CrossEntropyKernel(CrossEntropyArgs args) {
  constexpr int64_t kStep = kThreads * kCount, kChunk = kHeld * kStep;
  const int64_t token = blockIdx.x;
  float* const row = args.logits + token * args.logits_stride;
  const int32_t label = args.labels[token];
  assert(label < args.vocabulary);
  const auto load = [&](int64_t first, Pack<float, kCount>(&held)[kHeld]) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int64_t i = first + h * kStep;
      held[h] = LoadPack<float, kCount>(row + i, i < args.vocabulary);
    }
  };
  // With a softcap l = softcap * tanh(x / softcap) takes the place of a logit x.
  const float inverse_cap = kCapped ? 1.0f / args.softcap : 0.0f;
  const auto tanh_of = [&](float x) { return tanhf(x * inverse_cap); };
  const auto capped = [&](float x) { return kCapped ? args.softcap * tanh_of(x) : x; };
  const int64_t mine = threadIdx.x * kCount;
  Exponentials sum = {kLowest, 0.0f};
  for (int64_t first = mine; first < args.vocabulary; first += kChunk) {
    Pack<float, kCount> held[kHeld];
    load(first, held);
    float x[kHeld][kCount], largest = sum.largest;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      Widen(held[h], x[h]);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        x[h][j] = first + h * kStep < args.vocabulary ? capped(x[h][j]) : -INFINITY;
        largest = fmaxf(largest, x[h][j]);
      }
    }
    sum.total *= expf(sum.largest - largest);
    sum.largest = largest;
    // A NaN is not the largest, but makes the sum one.
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) sum.total += expf(x[h][j] - largest);
    }
  }
  sum = JoinBlock(sum, SharedMemory<Exponentials>());
  const float lse = sum.largest + logf(sum.total);
  if (threadIdx.x == 0) args.losses[token] = label < 0 ? 0.0f : lse - capped(row[label]);
  if (args.loss_only) return;
  __syncthreads();  // row[label] is read
  // The gradient may be shorter than the logit it replaces, so that it lands on logits further to
  // the front: each chunk is read by all before it is written, and those before it are done with.
  T* const out = reinterpret_cast<T*>(row);
  float scale = label < 0 ? 0.0f : args.scale;
  if (label >= 0 && args.weights != nullptr) scale *= args.weights[token];
  for (int64_t begin = 0; begin < args.vocabulary; begin += kChunk) {
    Pack<float, kCount> held[kHeld];
    load(begin + mine, held);
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int64_t i = begin + mine + h * kStep;
      if (i >= args.vocabulary) continue;
      float x[kCount];
      Widen(held[h], x);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const float by_raw = kCapped ? 1.0f - tanh_of(x[j]) * tanh_of(x[j]) : 1.0f;
        x[j] = (expf(capped(x[j]) - lse) - (i + j == label ? 1.0f : 0.0f)) * scale;
        if constexpr (kCapped) x[j] *= by_raw;
        if (label < 0) x[j] = 0;  // whatever the logits are
      }
      Store(x, out + i);
    }
  }
}

template <typename T, int kCount>
int LaunchLoss(const Queue& queue, const CrossEntropyArgs& args) {
  return Launch(
      args.softcap > 0 ? CrossEntropyKernel<T, kCount, true> : CrossEntropyKernel<T, kCount, false>,
      Grid(args.tokens), kThreads, kWarps * int{sizeof(Exponentials)}, queue, args);
}

template <typename T>
int CrossEntropyOf(const Queue& queue, const CrossEntropyArgs& args) {
  constexpr int kCount = kPackCount<float>;
  constexpr int64_t kSize = sizeof(float);
  const bool packs =
      MovesPacks(queue, {args.logits}, {args.logits_stride * kSize, args.vocabulary * kSize});
  return packs ? LaunchLoss<T, kCount>(queue, args) : LaunchLoss<T, 1>(queue, args);
}

}  // namespace

int CrossEntropy(const Queue& queue, const CrossEntropyArgs& args) {
  if (args.tokens == 0) return 0;
  return args.dtype == DType::kF32 ? CrossEntropyOf<float>(queue, args)
                                   : CrossEntropyOf<Bf16>(queue, args);
}

}  // namespace megatrain::cuda

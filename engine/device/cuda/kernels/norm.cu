// RMSNorm and its gradient: a team of threads a row (or a head of it, for QK norm), FP32 inside.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
// Rows up to this long are a warp's work, longer ones a block's.
constexpr int64_t kWarpWidthMax = 512;

template <typename T, int kCount, int kTeam>
__global__ void RmsNormKernel(RmsNormArgs args) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * (kThreads / kTeam) + threadIdx.x / kTeam;
  if (item >= args.rows * args.groups) return;  // a whole team
  const int lane = threadIdx.x % kTeam;
  const int64_t row = item / args.groups, group = item % args.groups;
  const T* const x = static_cast<const T*>(args.x) + row * args.x_stride + group * args.width;
  T* const y = static_cast<T*>(args.y) + row * args.y_stride + group * args.width;
  const T* const weight = static_cast<const T*>(args.weight);
  float squares = 0;
  for (int64_t i = lane * kCount; i < args.width; i += kTeam * kCount) {
    float v[kCount];
    Load(x + i, v);
#pragma unroll
    for (int j = 0; j < kCount; ++j) squares += v[j] * v[j];
  }
  squares = TeamSum<kTeam>(squares, SharedMemory<float>());
  const float rstd = 1.0f / sqrtf(squares / static_cast<float>(args.width) + args.epsilon);
  for (int64_t i = lane * kCount; i < args.width; i += kTeam * kCount) {
    float v[kCount], w[kCount];
    Load(x + i, v);
    Load(weight + i, w);
#pragma unroll
    for (int j = 0; j < kCount; ++j) v[j] *= rstd * w[j];
    Store(v, y + i);
  }
  if (args.rstd != nullptr && lane == 0) args.rstd[item] = rstd;
}

// With n = x * rstd and g = dy * weight: dx = rstd * (g - n * mean(g * n)), dweight = sum(dy * n).
// A block does `items` rows in their order; its teams' sums for dweight lie in shared memory, each
// column with the thread that has it in every row, and go to row blockIdx.x of `partial`.
template <typename T, int kCount, int kTeam>
__global__ void RmsNormBackwardKernel(RmsNormBackwardArgs args, int64_t items, float* partial) {
  constexpr int kTeams = kThreads / kTeam;
  const int team = threadIdx.x / kTeam, lane = threadIdx.x % kTeam;
  float* const shared = SharedMemory<float>();
  float* const sums = shared + kThreads / kWarp + team * args.width;
  for (int64_t i = lane * kCount; i < args.width; i += kTeam * kCount) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) sums[i + j] = 0;
  }
  const T* const weight = static_cast<const T*>(args.weight);
  const int64_t first = blockIdx.x * items, all = args.rows * args.groups;
  const int64_t last = first + items < all ? first + items : all;
  for (int64_t item = first + team; item < last; item += kTeams) {
    const int64_t row = item / args.groups, column = item % args.groups * args.width;
    const T* const x = static_cast<const T*>(args.x) + row * args.x_stride + column;
    const T* const dy = static_cast<const T*>(args.dy) + row * args.dy_stride + column;
    T* const dx = static_cast<T*>(args.dx) + row * args.dx_stride + column;
    const float rstd = args.rstd[item];
    float dot = 0;
    for (int64_t i = lane * kCount; i < args.width; i += kTeam * kCount) {
      float n[kCount], g[kCount], w[kCount];
      Load(x + i, n);
      Load(dy + i, g);
      Load(weight + i, w);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        n[j] *= rstd;
        dot += g[j] * w[j] * n[j];
      }
      // In packs: single floats of neighbouring lanes would lie in the same banks.
      constexpr int kPiece = kCount < 4 ? kCount : 4;
#pragma unroll
      for (int p = 0; p < kCount; p += kPiece) {
        float s[kPiece];
        Load(sums + i + p, s);
#pragma unroll
        for (int j = 0; j < kPiece; ++j) s[j] += g[p + j] * n[p + j];
        Store(s, sums + i + p);
      }
    }
    const float mean = TeamSum<kTeam>(dot, shared) / static_cast<float>(args.width);
    for (int64_t i = lane * kCount; i < args.width; i += kTeam * kCount) {
      float n[kCount], g[kCount], w[kCount], out[kCount];
      Load(x + i, n);
      Load(dy + i, g);
      Load(weight + i, w);
      if (args.accumulate) {
        Load(dx + i, out);
      } else {
#pragma unroll
        for (int j = 0; j < kCount; ++j) out[j] = 0;
      }
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        out[j] += rstd * (g[j] * w[j] - n[j] * rstd * mean);
      }
      Store(out, dx + i);
    }
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < args.width; i += kThreads) {
    float sum = 0;
#pragma unroll
    for (int t = 0; t < kTeams; ++t) sum += shared[kThreads / kWarp + t * args.width + i];
    partial[blockIdx.x * args.width + i] = sum;
  }
}

template <typename T, int kCount, int kTeam>
int LaunchNorm(void* stream, const RmsNormArgs& args) {
  return Launch(RmsNormKernel<T, kCount, kTeam>,
                Grid(CeilDiv(args.rows * args.groups, kThreads / kTeam)), kThreads,
                kThreads / kWarp * int{sizeof(float)}, stream, args);
}

template <typename T, int kCount, int kTeam>
int LaunchBackward(void* stream, const RmsNormBackwardArgs& args, void* scratch) {
  const int64_t all = args.rows * args.groups;
  const int64_t blocks_max = PartialSumBlocks(CeilDiv(all, kThreads / kTeam), args.width);
  if (blocks_max == 0) return kInvalidValue;
  const int64_t items = CeilDiv(all, blocks_max);
  const int64_t blocks = CeilDiv(all, items);
  const int64_t shared =
      (kThreads / kWarp + kThreads / kTeam * args.width) * int64_t{sizeof(float)};
  float* const partial = static_cast<float*>(scratch);
  const int error = Launch(RmsNormBackwardKernel<T, kCount, kTeam>, Grid(blocks), kThreads,
                           static_cast<int>(shared), stream, args, items, partial);
  if (error != 0) return error;
  return AddPartialSums(stream, partial, blocks, args.width, args.dweight);
}

template <typename T>
int RmsNormOf(void* stream, const RmsNormArgs& args) {
  constexpr int64_t kSize = sizeof(T);
  const bool packs = Aligned({args.x, args.y, args.weight},
                             {args.x_stride * kSize, args.y_stride * kSize, args.width * kSize});
  if (args.width <= kWarpWidthMax) {
    return packs ? LaunchNorm<T, kPackCount<T>, kWarp>(stream, args)
                 : LaunchNorm<T, 1, kWarp>(stream, args);
  }
  return packs ? LaunchNorm<T, kPackCount<T>, kThreads>(stream, args)
               : LaunchNorm<T, 1, kThreads>(stream, args);
}

template <typename T>
int RmsNormBackwardOf(void* stream, const RmsNormBackwardArgs& args, void* scratch) {
  constexpr int64_t kSize = sizeof(T);
  const bool packs = Aligned(
      {args.x, args.dy, args.dx, args.weight},
      {args.x_stride * kSize, args.dy_stride * kSize, args.dx_stride * kSize, args.width * kSize});
  if (args.width <= kWarpWidthMax) {
    return packs ? LaunchBackward<T, kPackCount<T>, kWarp>(stream, args, scratch)
                 : LaunchBackward<T, 1, kWarp>(stream, args, scratch);
  }
  return packs ? LaunchBackward<T, kPackCount<T>, kThreads>(stream, args, scratch)
               : LaunchBackward<T, 1, kThreads>(stream, args, scratch);
}

}  // namespace

int RmsNorm(void* stream, const RmsNormArgs& args) {
  if (args.rows * args.groups == 0) return 0;
  return args.dtype == DType::kF32 ? RmsNormOf<float>(stream, args) : RmsNormOf<Bf16>(stream, args);
}

int RmsNormBackward(void* stream, const RmsNormBackwardArgs& args, void* scratch) {
  if (args.rows * args.groups == 0) return 0;
  return args.dtype == DType::kF32 ? RmsNormBackwardOf<float>(stream, args, scratch)
                                   : RmsNormBackwardOf<Bf16>(stream, args, scratch);
}

}  // namespace megatrain::cuda

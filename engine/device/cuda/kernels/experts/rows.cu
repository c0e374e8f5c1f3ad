// The rows of experts: gathered, added up and weighed. Everything is moved in packs of 16 bytes
// where alignment allows, and bound by memory.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Packs of a row that a lane has, and asks for at once.
constexpr int kHeld = 4, kHeldSums = 2;

// A warp has a stretch of a row: kPacks packs a lane. `stretches` make up a row.
struct Stretch {
  int64_t row, column;  // the column of the lane's first pack
};
template <int kPacks, int kCount>
__device__ Stretch StretchOf(uint32_t stretches) {
  const uint32_t item = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const uint32_t row = item / stretches;
  return {row, ((item - row * stretches) * kPacks * kWarp + threadIdx.x % kWarp) * int64_t{kCount}};
}

__device__ inline int64_t AssignmentOf(const ExpertRows& range, int64_t row) {
  return range.assignments[range.first + row];
}
__device__ inline int64_t TokenOf(const ExpertRows& range, int64_t row) {
  return static_cast<uint32_t>(AssignmentOf(range, row)) / static_cast<uint32_t>(range.chosen);
}
__device__ inline float WeightOf(const ExpertRows& range, const float* weights, int64_t row) {
  return weights != nullptr ? weights[AssignmentOf(range, row)] : 1.0f;
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    GatherRowsKernel(GatherRowsArgs args, uint32_t stretches) {
  const Stretch mine = StretchOf<kHeld, kCount>(stretches);
  if (mine.row >= args.range.rows) return;
  const T* const from = static_cast<const T*>(args.x) + TokenOf(args.range, mine.row) * args.width;
  T* const to = static_cast<T*>(args.out) + mine.row * args.width;
  Pack<T, kCount> held[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t i = mine.column + h * kWarp * kCount;
    held[h] = LoadPack<T, kCount>(from + i, i < args.width);
  }
  const float weight = WeightOf(args.range, args.weights, mine.row);
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t i = mine.column + h * kWarp * kCount;
    if (i >= args.width) continue;
    if (args.weights != nullptr) {
      float v[kCount];
      Widen(held[h], v);
#pragma unroll
      for (int j = 0; j < kCount; ++j) v[j] *= weight;
      Narrow(v, held[h]);
    }
    StorePack(held[h], to + i);
  }
}

// The first of a token's rows in the range adds all of them; the warps of its others have nothing
// to do. So the work depends on the rows of the range and not on the tokens, and one thread has all
// of a sum's terms in their order.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) AddRowsKernel(AddRowsArgs args, uint32_t stretches) {
  // The elements of a pack of the FP32 sum, and the number of these packs for kCount elements.
  constexpr int kPart = kCount < 4 ? kCount : 4, kParts = kCount / kPart;
  const Stretch mine = StretchOf<kHeldSums, kCount>(stretches);
  const ExpertRows& range = args.range;
  if (mine.row >= range.rows) return;
  const int64_t token = TokenOf(range, mine.row);
  const int32_t* const rows = range.token_rows + token * range.chosen;
  int64_t at = 0;
  while (at < range.chosen && rows[at] < range.first) ++at;
  if (at == range.chosen || rows[at] != range.first + mine.row) return;

  float* const sum = args.sum + token * args.width;
  float sums[kHeldSums][kCount];
#pragma unroll
  for (int h = 0; h < kHeldSums; ++h) {
    const int64_t i = mine.column + h * kWarp * kCount;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      float part[kPart];
      Widen(LoadPack<float, kPart>(sum + i + p * kPart, i < args.width), part);
#pragma unroll
      for (int j = 0; j < kPart; ++j) sums[h][p * kPart + j] = part[j];
    }
  }
  for (; at < range.chosen && rows[at] < range.first + range.rows; ++at) {
    const int64_t row = rows[at] - range.first;
    const T* const from = static_cast<const T*>(args.x) + row * args.width;
    const float weight = WeightOf(range, args.weights, row);
#pragma unroll
    for (int h = 0; h < kHeldSums; ++h) {
      const int64_t i = mine.column + h * kWarp * kCount;
      float v[kCount];
      Widen(LoadPack<T, kCount>(from + i, i < args.width), v);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sums[h][j] = fmaf(weight, v[j], sums[h][j]);
    }
  }
#pragma unroll
  for (int h = 0; h < kHeldSums; ++h) {
    const int64_t i = mine.column + h * kWarp * kCount;
    if (i >= args.width) continue;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      float part[kPart];
#pragma unroll
      for (int j = 0; j < kPart; ++j) part[j] = sums[h][p * kPart + j];
      Store(part, sum + i + p * kPart);
    }
  }
}

// Returns the lane's part of the sum of a[i] * b[i]. With `scaled`, a is multiplied by `scale`.
template <int kCount, typename T>
__device__ float Dot(const T* a, const T* b, int64_t width, T* scaled, float scale) {
  float sum = 0;
  for (int64_t first = threadIdx.x % kWarp * kCount; first < width;
       first += kHeld * kWarp * kCount) {
    Pack<T, kCount> held[2][kHeld];
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int64_t i = first + h * kWarp * kCount;
      held[0][h] = LoadPack<T, kCount>(a + i, i < width);
      held[1][h] = LoadPack<T, kCount>(b + i, i < width);
    }
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int64_t i = first + h * kWarp * kCount;
      if (i >= width) continue;
      float x[kCount], y[kCount];
      Widen(held[0][h], x);
      Widen(held[1][h], y);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        sum += x[j] * y[j];
        x[j] *= scale;
      }
      if (scaled != nullptr) Store(x, scaled + i);
    }
  }
  return sum;
}

// A warp has a row.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) WeighRowsKernel(WeighRowsArgs args) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= args.range.rows) return;
  const int64_t assignment = AssignmentOf(args.range, row);
  T* const dout = static_cast<T*>(args.dout) + row * args.width;
  float sum = Dot<kCount, T>(dout, static_cast<const T*>(args.out) + row * args.width, args.width,
                             dout, args.weights[assignment]);
  if (args.bias != nullptr) {
    const int64_t expert = args.choice[assignment] - args.first_expert;
    sum += Dot<kCount, T>(static_cast<const T*>(args.dy) + row * args.bias_width,
                          static_cast<const T*>(args.bias) + expert * args.bias_width,
                          args.bias_width, nullptr, 1.0f);
  }
  sum = TeamSum<kWarp>(sum, nullptr);
  if (threadIdx.x % kWarp == 0) args.dweights[assignment] = sum;
}

// Launches a kernel whose warps have stretches of kPacks packs a lane.
template <int kPacks, int kCount, typename Args>
int LaunchStretches(void (*kernel)(Args, uint32_t), const Queue& queue, const Args& args) {
  const int64_t stretches = CeilDiv(args.width, kWarp * kPacks * kCount);
  const int64_t items = args.range.rows * stretches;
  if (items == 0) return 0;
  if (items > kThreadsMax) return kInvalidValue;
  return Launch(kernel, Grid(CeilDiv(items, kWarps)), kThreads, 0, queue, args,
                static_cast<uint32_t>(stretches));
}

template <typename T>
int GatherRowsOf(const Queue& queue, const GatherRowsArgs& args) {
  constexpr int kCount = kPackCount<T>;
  return MovesPacks(queue, {args.x, args.out}, {args.width * int64_t{sizeof(T)}})
             ? LaunchStretches<kHeld, kCount>(GatherRowsKernel<T, kCount>, queue, args)
             : LaunchStretches<kHeld, 1>(GatherRowsKernel<T, 1>, queue, args);
}

template <typename T>
int AddRowsOf(const Queue& queue, const AddRowsArgs& args) {
  constexpr int kCount = kPackCount<T>;
  return MovesPacks(queue, {args.x, args.sum}, {args.width * int64_t{sizeof(T)}})
             ? LaunchStretches<kHeldSums, kCount>(AddRowsKernel<T, kCount>, queue, args)
             : LaunchStretches<kHeldSums, 1>(AddRowsKernel<T, 1>, queue, args);
}

template <typename T>
int WeighRowsOf(const Queue& queue, const WeighRowsArgs& args) {
  if (args.range.rows == 0) return 0;
  constexpr int64_t kSize = sizeof(T);
  const bool has_bias = args.bias != nullptr;
  const bool packs =
      MovesPacks(queue, {args.out, args.dout}, {args.width * kSize}) &&
      (!has_bias || MovesPacks(queue, {args.dy, args.bias}, {args.bias_width * kSize}));
  return Launch(packs ? WeighRowsKernel<T, kPackCount<T>> : WeighRowsKernel<T, 1>,
                Grid(CeilDiv(args.range.rows, kWarps)), kThreads, 0, queue, args);
}

}  // namespace

int GatherRows(const Queue& queue, const GatherRowsArgs& args) {
  return args.dtype == DType::kF32 ? GatherRowsOf<float>(queue, args)
                                   : GatherRowsOf<Bf16>(queue, args);
}

int AddRows(const Queue& queue, const AddRowsArgs& args) {
  return args.dtype == DType::kF32 ? AddRowsOf<float>(queue, args) : AddRowsOf<Bf16>(queue, args);
}

int WeighRows(const Queue& queue, const WeighRowsArgs& args) {
  return args.dtype == DType::kF32 ? WeighRowsOf<float>(queue, args)
                                   : WeighRowsOf<Bf16>(queue, args);
}

}  // namespace megatrain::cuda

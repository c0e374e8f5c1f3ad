// RMSNorm and its gradient, FP32 inside.
#include <cstdint>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/norm_shape.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = kNormThreads;

template <typename T, int kCount, typename Shape, bool kAdd>
__global__ void __launch_bounds__(kThreads) RmsNormKernel(RmsNormArgs args) {
  constexpr int kTeam = Shape::kTeam, kHeld = Shape::kHeld, kRows = Shape::kRows;
  const int lane = threadIdx.x % kTeam;
  const uint32_t first = blockIdx.x * Shape::kBlockRows + threadIdx.x / kTeam * kRows;
  const uint32_t all = static_cast<uint32_t>(args.rows * args.groups);
  const bool weighted = args.weight != nullptr, plus_one = AddsOne(args);
  // Without a weight any address will do, because nothing is read.
  const T* const weight = static_cast<const T*>(weighted ? args.weight : args.x);
  const int width = static_cast<int>(args.width);
  const auto column = [&](int h) { return (lane + h * kTeam) * kCount; };

  const T* x[kRows];
  Pack<T, kCount> held[kRows][kHeld], w[kHeld], added[kRows][kAdd ? kHeld : 1];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    x[r] = static_cast<const T*>(args.x) + RowOffset(args, first + r, args.x_stride);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      held[r][h] = LoadPack<T, kCount>(x[r] + column(h), first + r < all && column(h) < width);
    }
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    w[h] = LoadPack<T, kCount>(weight + column(h), weighted && column(h) < width);
  }
  const auto addend = [&](int r) {
    return static_cast<const T*>(args.addend) + RowOffset(args, first + r, args.y_stride);
  };
  if constexpr (kAdd) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int h = 0; h < kHeld; ++h) {
        added[r][h] =
            LoadPack<T, kCount>(addend(r) + column(h), first + r < all && column(h) < width);
      }
    }
  }
  float rstd[kRows] = {};
  const auto add_squares = [&](int r, const Pack<T, kCount>& pack) {
    float v[kCount];
    Widen(pack, v);
#pragma unroll
    for (int j = 0; j < kCount; ++j) rstd[r] += v[j] * v[j];
  };
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) add_squares(r, held[r][h]);
  }
  if constexpr (Shape::kHasRest) {
    for (int i = column(kHeld); i < width; i += kTeam * kCount) {
      add_squares(0, LoadPack<T, kCount>(x[0] + i));
    }
  }
  TeamSums<kTeam>(rstd, SharedMemory<float>());
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rstd[r] = 1.0f / sqrtf(rstd[r] / static_cast<float>(width) + args.epsilon);
  }

  using Values = Pack<T, kCount>;
  const auto store = [&](int r, int i, const Values& x_of, const Values& w_of,
                         const Values& added_of) {
    float v[kCount], factor[kCount];
    Widen(x_of, v);
    WidenWeights<T, kCount>(w_of, plus_one, factor);
#pragma unroll
    for (int j = 0; j < kCount; ++j) v[j] *= rstd[r] * factor[j];
    if constexpr (kAdd) {
      float sum[kCount];
      Widen(added_of, sum);
#pragma unroll
      for (int j = 0; j < kCount; ++j) v[j] += sum[j];
    }
    Store(v, static_cast<T*>(args.y) + RowOffset(args, first + r, args.y_stride) + i);
  };
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r >= all) break;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      if (column(h) < width) store(r, column(h), held[r][h], w[h], added[r][kAdd ? h : 0]);
    }
  }
  if constexpr (Shape::kHasRest) {
    for (int i = column(kHeld); i < width; i += kTeam * kCount) {
      Values added_of = {};
      if constexpr (kAdd) added_of = LoadPack<T, kCount>(addend(0) + i);
      store(0, i, LoadPack<T, kCount>(x[0] + i), LoadPack<T, kCount>(weight + i, weighted),
            added_of);
    }
  }
  if (args.rstd != nullptr && lane == 0) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first + r < all) args.rstd[first + r] = rstd[r];
    }
  }
}

template <typename T, int kCount>
int LaunchNorm(const Queue& queue, const RmsNormArgs& args) {
  return WithNormShape<kCount != 1>(args.width / kCount, [&]<typename Shape>() {
    return Launch(args.addend != nullptr ? RmsNormKernel<T, kCount, Shape, true>
                                         : RmsNormKernel<T, kCount, Shape, false>,
                  Grid(CeilDiv(args.rows * args.groups, Shape::kBlockRows)), kThreads,
                  Shape::kSharedFloats * int{sizeof(float)}, queue, args);
  });
}

template <typename T>
int RmsNormOf(const Queue& queue, const RmsNormArgs& args) {
  constexpr int64_t kSize = sizeof(T);
  return MovesPacks(queue, {args.x, args.y, args.weight, args.addend},
                    {args.x_stride * kSize, args.y_stride * kSize, args.width * kSize})
             ? LaunchNorm<T, kPackCount<T>>(queue, args)
             : LaunchNorm<T, 1>(queue, args);
}

// ---- Gradient ----

// A team's sums for dweight in shared memory. Those of a pack lie apart in pieces of 16 bytes,
// those of neighbouring lanes side by side: no bank conflicts.
template <int kCount>
struct ColumnSums {
  static constexpr int kPiece = kCount < 4 ? kCount : 4;
  struct alignas(kPiece * sizeof(float)) Piece {
    float v[kPiece];
  };

  // Where piece p of the pack at `column` lies.
  __device__ static int At(int width, int column, int p) {
    return p * (width / kCount * kPiece) + column / kCount * kPiece;
  }

  __device__ static void Load(const float* sums, int width, int column, float (&sum)[kCount]) {
#pragma unroll
    for (int p = 0; p < kCount / kPiece; ++p) {
      const Piece s = *reinterpret_cast<const Piece*>(sums + At(width, column, p));
#pragma unroll
      for (int j = 0; j < kPiece; ++j) sum[p * kPiece + j] = s.v[j];
    }
  }

  __device__ static void Store(const float (&sum)[kCount], int width, int column, float* sums) {
#pragma unroll
    for (int p = 0; p < kCount / kPiece; ++p) {
      Piece s;
#pragma unroll
      for (int j = 0; j < kPiece; ++j) s.v[j] = sum[p * kPiece + j];
      *reinterpret_cast<Piece*>(sums + At(width, column, p)) = s;
    }
  }

  // Adds up the sums of all teams, in their order, for the block's row of `partial`.
  __device__ static void StoreBlock(const float* all_sums, int teams, int width, float* row) {
    for (int i = threadIdx.x; i < width; i += kThreads) {
      float sum = 0;
      const int at = At(width, i, i % kCount / kPiece) + i % kPiece;
#pragma unroll 4
      for (int t = 0; t < teams; ++t) sum += all_sums[t * width + at];
      row[i] = sum;
    }
  }
};

// A team's rows: the packs that its threads hold of each, and where the rows lie.
template <typename T, int kCount, typename Shape>
struct GradientRows {
  static constexpr int kHeld = Shape::kHeld, kRows = Shape::kRows;
  Pack<T, kCount> x[kRows][kHeld], dy[kRows][kHeld], before[kRows][kHeld];
  float rstd[kRows];
  const T *x_of[kRows], *dy_of[kRows];
  T* dx_of[kRows];

  // Loads rows from `first` on, those that are below `last`.
  __device__ void Load(const RmsNormBackwardArgs& args, uint32_t first, uint32_t last, int lane) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      x_of[r] = static_cast<const T*>(args.x) + RowOffset(args, first + r, args.x_stride);
      dy_of[r] = static_cast<const T*>(args.dy) + RowOffset(args, first + r, args.dy_stride);
      dx_of[r] = static_cast<T*>(args.dx) + RowOffset(args, first + r, args.dx_stride);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool row_there = first + r < last;
      rstd[r] = row_there ? args.rstd[first + r] : 0.0f;
#pragma unroll
      for (int h = 0; h < kHeld; ++h) {
        const int column = (lane + h * Shape::kTeam) * kCount;
        const bool there = row_there && column < static_cast<int>(args.width);
        x[r][h] = LoadPack<T, kCount>(x_of[r] + column, there);
        dy[r][h] = LoadPack<T, kCount>(dy_of[r] + column, there);
        before[r][h] = LoadPack<T, kCount>(dx_of[r] + column, there && args.accumulate);
      }
    }
  }
};

// out = dx + rstd * (g - n * mean)
template <typename T, int kCount>
__device__ void StoreNormGradient(const Pack<T, kCount>& weights, bool plus_one,
                                  const Pack<T, kCount>& x, const Pack<T, kCount>& dy,
                                  const Pack<T, kCount>& dx, float rstd, float mean, T* to) {
  float n[kCount], g[kCount], w_of[kCount], out[kCount];
  Widen(x, n);
  Widen(dy, g);
  WidenWeights<T, kCount>(weights, plus_one, w_of);
  Widen(dx, out);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    out[j] += rstd * (g[j] * w_of[j] - n[j] * rstd * mean);
  }
  Store(out, to);
}

// With n = x * rstd and g = dy * weight: dx = rstd * (g - n * mean(g * n)), dweight = sum(dy * n).
// A block does `items` rows in their order; its teams' sums for dweight lie in shared memory, each
// column with the thread that has it in every row, and go to row blockIdx.x of `partial`.
template <typename T, int kCount, typename Shape>
__global__ void __launch_bounds__(kThreads)
    RmsNormBackwardKernel(RmsNormBackwardArgs args, uint32_t items, float* partial) {
  constexpr int kTeam = Shape::kTeam, kHeld = Shape::kHeld, kRows = Shape::kRows;
  using Sums = ColumnSums<kCount>;
  using Rows = GradientRows<T, kCount, Shape>;
  using Values = Pack<T, kCount>;
  const int team = threadIdx.x / kTeam, lane = threadIdx.x % kTeam;
  const int width = static_cast<int>(args.width);
  float* const shared = SharedMemory<float>();
  float* const all_sums = shared + Shape::kSharedFloats;
  float* const sums = all_sums + team * width;
  const auto column = [&](int h) { return (lane + h * kTeam) * kCount; };
  for (int i = lane; i < width; i += kTeam) sums[i] = 0;
  if constexpr (kTeam == kThreads) {
    __syncthreads();
  } else {
    __syncwarp();
  }

  const bool weighted = args.weight != nullptr, plus_one = AddsOne(args);
  // Without a weight any address will do, because nothing is read.
  const T* const weight = static_cast<const T*>(weighted ? args.weight : args.x);
  Values w[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    w[h] = LoadPack<T, kCount>(weight + column(h), weighted && column(h) < width);
  }
  const uint32_t first = blockIdx.x * items, all = static_cast<uint32_t>(args.rows * args.groups);
  const uint32_t last = all - first < items ? all : first + items;
  // Every team makes the same number of rounds, because they synchronise.
  for (uint32_t base = first; base < last; base += Shape::kBlockRows) {
    const uint32_t mine = base + team * kRows;
    Rows rows;
    rows.Load(args, mine, last, lane);
    float mean[kRows] = {};

    // Adds a pack of each row to the row's mean and to the column's sums.
    const auto add = [&](int i, const Values& weights, const auto& x_at, const auto& dy_at) {
      float w_of[kCount], sum[kCount];
      WidenWeights<T, kCount>(weights, plus_one, w_of);
      Sums::Load(sums, width, i, sum);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float n[kCount], g[kCount];
        Widen(x_at(r), n);
        Widen(dy_at(r), g);
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          const float term = g[j] * (n[j] * rows.rstd[r]);
          sum[j] += term;
          mean[r] += term * w_of[j];
        }
      }
      Sums::Store(sum, width, i, sums);
    };
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      if (column(h) >= width) continue;
      add(
          column(h), w[h], [&](int r) { return rows.x[r][h]; },
          [&](int r) { return rows.dy[r][h]; });
    }
    if constexpr (Shape::kHasRest) {
      for (int i = column(kHeld); i < width; i += kTeam * kCount) {
        add(
            i, LoadPack<T, kCount>(weight + i, weighted),
            [&](int) { return LoadPack<T, kCount>(rows.x_of[0] + i); },
            [&](int) { return LoadPack<T, kCount>(rows.dy_of[0] + i); });
      }
    }
    TeamSums<kTeam>(mean, shared);
#pragma unroll
    for (int r = 0; r < kRows; ++r) mean[r] /= static_cast<float>(width);

#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (mine + r >= last) continue;
#pragma unroll
      for (int h = 0; h < kHeld; ++h) {
        if (column(h) >= width) continue;
        StoreNormGradient<T, kCount>(w[h], plus_one, rows.x[r][h], rows.dy[r][h], rows.before[r][h],
                                     rows.rstd[r], mean[r], rows.dx_of[r] + column(h));
      }
    }
    if constexpr (Shape::kHasRest) {
      for (int i = column(kHeld); i < width; i += kTeam * kCount) {
        StoreNormGradient<T, kCount>(LoadPack<T, kCount>(weight + i, weighted), plus_one,
                                     LoadPack<T, kCount>(rows.x_of[0] + i),
                                     LoadPack<T, kCount>(rows.dy_of[0] + i),
                                     LoadPack<T, kCount>(rows.dx_of[0] + i, args.accumulate),
                                     rows.rstd[0], mean[0], rows.dx_of[0] + i);
      }
    }
  }
  __syncthreads();
  Sums::StoreBlock(all_sums, Shape::kTeams, width,
                   partial + static_cast<int64_t>(blockIdx.x) * width);
}

template <typename T, int kCount>
int LaunchBackward(const Queue& queue, const RmsNormBackwardArgs& args, float* partial) {
  int64_t blocks = 0;
  const int error = WithNormShape<kCount != 1>(args.width / kCount, [&]<typename Shape>() {
    const int64_t all = args.rows * args.groups;
    const int64_t blocks_max = PartialSumBlocks(queue, CeilDiv(all, Shape::kBlockRows), args.width);
    if (blocks_max == 0) return kInvalidValue;
    const int64_t items = CeilDiv(CeilDiv(all, Shape::kBlockRows), blocks_max) * Shape::kBlockRows;
    blocks = CeilDiv(all, items);
    const int64_t shared =
        (Shape::kSharedFloats + Shape::kTeams * args.width) * int64_t{sizeof(float)};
    return Launch(RmsNormBackwardKernel<T, kCount, Shape>, Grid(blocks), kThreads,
                  static_cast<int>(shared), queue, args, static_cast<uint32_t>(items), partial);
  });
  if (error != 0 || args.dweight == nullptr) return error;
  return AddPartialSums(queue, partial, blocks, args.width, args.add_dweight, args.dweight);
}

template <typename T>
int RmsNormBackwardOf(const Queue& queue, const RmsNormBackwardArgs& args, float* partial) {
  constexpr int64_t kSize = sizeof(T);
  return MovesPacks(queue, {args.x, args.dy, args.dx, args.weight},
                    {args.x_stride * kSize, args.dy_stride * kSize, args.dx_stride * kSize,
                     args.width * kSize})
             ? LaunchBackward<T, kPackCount<T>>(queue, args, partial)
             : LaunchBackward<T, 1>(queue, args, partial);
}

}  // namespace

int RmsNorm(const Queue& queue, const RmsNormArgs& args) {
  if (args.rows * args.groups == 0) return 0;
  if (args.rows * args.groups > kThreadsMax) return kInvalidValue;
  return args.dtype == DType::kF32 ? RmsNormOf<float>(queue, args) : RmsNormOf<Bf16>(queue, args);
}

int RmsNormBackward(const Queue& queue, const RmsNormBackwardArgs& args, void* scratch) {
  if (args.rows * args.groups > kThreadsMax) return kInvalidValue;
  float* const partial = static_cast<float*>(scratch);
  if (args.rows * args.groups == 0) {
    if (args.dweight == nullptr) return 0;
    return AddPartialSums(queue, partial, 0, args.width, args.add_dweight, args.dweight);
  }
  return args.dtype == DType::kF32 ? RmsNormBackwardOf<float>(queue, args, partial)
                                   : RmsNormBackwardOf<Bf16>(queue, args, partial);
}

}  // namespace megatrain::cuda

// RMSNorm, FP32 inside.
#include <cstdint>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/norm_shape.h"
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

}  // namespace

int RmsNorm(const Queue& queue, const RmsNormArgs& args) {
  if (args.rows * args.groups == 0) return 0;
  if (args.rows * args.groups > kThreadsMax) return kInvalidValue;
  return args.dtype == DType::kF32 ? RmsNormOf<float>(queue, args) : RmsNormOf<Bf16>(queue, args);
}

}  // namespace megatrain::cuda

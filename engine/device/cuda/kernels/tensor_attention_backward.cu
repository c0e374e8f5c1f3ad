// The gradient of attention in BF16 on tensor cores, in two kernels without atomics, so that every
// sum has one order: dQ by blocks of queries, dK and dV by blocks of keys over the queries of the
// group's heads. The formulas are those of attention_backward.cu; P and dS are rounded to BF16
// before they meet the tiles (Dao 2023).
#include "engine/device/cuda/kernels/tensor_attention.h"

namespace megatrain::cuda {
namespace {

// Two stages of two tiles: one is copied while the other is used.
template <typename Shape, typename ValueShape>
inline constexpr int kStageElements = Shape::kTileElements + ValueShape::kTileElements;
template <typename Shape, typename ValueShape, int kSplits>
inline constexpr int kSharedBytes =
    (Shape::kRowsElements + ValueShape::kRowsElements +
     kSplits * 2 * kStageElements<Shape, ValueShape>)*static_cast<int>(sizeof(Bf16));

template <typename Shape, typename ValueShape, bool kCapped>
__global__ void __launch_bounds__(kTensorThreads)
    TensorQueryGradientKernel(AttentionBackwardArgs args, const float* delta) {
  constexpr int kRows = Shape::kRows, kTile = Shape::kTile;
  const AttentionArgs& f = args.forward;
  Bf16* const queries = SharedMemory<Bf16>();
  Bf16* const douts = queries + Shape::kRowsElements;
  Bf16* const stages = douts + ValueShape::kRowsElements;  // of keys, then values
  const int dim = static_cast<int>(f.head_dim), value_dim = static_cast<int>(f.value_dim);
  const int lane = threadIdx.x % kWarp;
  const int row = threadIdx.x / kWarp * kWarpRows;
  const int64_t head = blockIdx.y, kv_head = head / (f.heads / f.kv_heads);
  const int64_t first = (gridDim.x - 1 - static_cast<int64_t>(blockIdx.x)) * kRows;
  const int64_t last = first + kRows < f.tokens ? first + kRows : f.tokens;
  const int64_t warp_last = first + row + kWarpRows < last ? first + row + kWarpRows : last;
  const ScoreFactors factors_of = FactorsOf(f);

  int64_t queries_of[2], starts[2], ends[2];
  float lse[2], delta_of[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    queries_of[r] = first + row + lane / 4 + 8 * r;
    const bool there = queries_of[r] < last;
    starts[r] = there ? SightStart(f, queries_of[r]) : f.tokens;
    ends[r] = queries_of[r] + 1;
    lse[r] = there ? f.lse[head * f.tokens + queries_of[r]] * kLog2OfE : 0.0f;
    delta_of[r] = there ? delta[head * f.tokens + queries_of[r]] : 0.0f;
  }
  const int64_t warp_start = SightStart(f, warp_last - 1);

  const auto copy_stage = [&](int64_t key, Bf16* stage) {
    CopyRows<Shape, kTile>(static_cast<const Bf16*>(f.k) + kv_head * dim, f.k_stride, key, last,
                           dim, stage);
    CopyRows<ValueShape, kTile>(static_cast<const Bf16*>(f.v) + kv_head * value_dim, f.v_stride,
                                key, last, value_dim, stage + Shape::kTileElements);
  };
  CopyRows<Shape, kRows>(static_cast<const Bf16*>(f.q) + head * dim, f.q_stride, first, last, dim,
                         queries);
  CopyRows<ValueShape, kRows>(static_cast<const Bf16*>(args.dout) + head * value_dim,
                              f.heads * value_dim, first, last, value_dim, douts);
  int64_t key = SightStart(f, first) / kTile * kTile;
  copy_stage(key, stages);
  CommitCopies();

  typename Shape::Sums sums;
  ClearSums<Shape>(sums);
  for (int stage = 0; key < last; key += kTile, stage ^= 1) {
    const Bf16* const keys = stages + stage * kStageElements<Shape, ValueShape>;
    const Bf16* const values = keys + Shape::kTileElements;
    WaitForCopies<0>();
    __syncthreads();  // this stage is there, the other is done with
    if (key + kTile < last) {
      copy_stage(key + kTile, stages + (stage ^ 1) * kStageElements<Shape, ValueShape>);
      CommitCopies();
    }
    typename Shape::Scores p, dp;
    RowsByTile<Shape>(queries, row, keys, p);
    RowsByTile<ValueShape>(douts, row, values, dp);
    if (kCapped) Cap<Shape>(factors_of.cap, p);
    if (key + kTile - 1 > first + row || key < warp_start) {
      Mask<Shape>(key, starts, ends, p);
    }
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        dp[n][i] = Exp2(p[n][i] * factors_of.exponent - lse[i / 2]) * (dp[n][i] - delta_of[i / 2]);
        if (kCapped) dp[n][i] *= CapSlope(p[n][i]);
      }
    }
    ScoresByTile<Shape>(dp, keys, sums);
  }
  const float factors[2] = {f.scale, f.scale};
  StoreRows<Shape>(sums, factors, queries + row * Shape::kStride, row, first, last, dim,
                   args.dq_stride, static_cast<Bf16*>(args.dq) + head * dim);
}

// Adds the sums of the block's second four warps to those of the first, thread by thread. `shared`
// has the splits' stages.
template <typename Shape>
__device__ void AddSplit(typename Shape::Sums& sums, float* shared) {
  static_assert(kTensorThreads * Shape::kDim / 2 * sizeof(float) <=
                2 * 2 * kStageElements<Shape, Shape> * sizeof(Bf16));
  const int thread = threadIdx.x % kTensorThreads;
  const bool second = threadIdx.x >= kTensorThreads;
  __syncthreads();  // what lay there has been read
#pragma unroll
  for (int n = 0; n < Shape::kDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (second) shared[(4 * n + i) * kTensorThreads + thread] = sums[n][i];
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < Shape::kDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!second) sums[n][i] += shared[(4 * n + i) * kTensorThreads + thread];
    }
  }
}

// Copies a tile of a head's queries, and their output gradients behind it.
template <typename Shape, typename ValueShape>
__device__ void CopyQueryTile(const AttentionBackwardArgs& args, int64_t head, int64_t query,
                              Bf16* to, int thread) {
  const AttentionArgs& f = args.forward;
  const int dim = static_cast<int>(f.head_dim), value_dim = static_cast<int>(f.value_dim);
  CopyRows<Shape, Shape::kTile>(static_cast<const Bf16*>(f.q) + head * dim, f.q_stride, query,
                                f.tokens, dim, to, thread);
  CopyRows<ValueShape, Shape::kTile>(static_cast<const Bf16*>(args.dout) + head * value_dim,
                                     f.heads * value_dim, query, f.tokens, value_dim,
                                     to + Shape::kTileElements, thread);
}

// Makes probabilities of the scores `p` of keys by queries, and their gradient of `dp` if it is
// asked for. Each lane has the log of a column's sum and its delta, and gives them to the others.
template <typename Shape, bool kGradient, bool kCapped>
__device__ void ScoreGradients(float scale, float my_lse, float my_delta, typename Shape::Scores& p,
                               typename Shape::Scores& dp) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int n = 0; n < Shape::kTile / 8; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int from = n * 8 + lane % 4 * 2 + j;
      const float lse_of = __shfl_sync(~0u, my_lse, from);
      const float delta_of = kGradient ? __shfl_sync(~0u, my_delta, from) : 0.0f;
#pragma unroll
      for (int i = j; i < 4; i += 2) {
        const float slope = kCapped ? CapSlope(p[n][i]) : 1.0f;
        p[n][i] = Exp2(p[n][i] * scale - lse_of);
        if (kGradient) dp[n][i] = p[n][i] * (dp[n][i] - delta_of);
        if (kGradient && kCapped) dp[n][i] *= slope;
      }
    }
  }
}

// kDk, kDv: which gradients are made. Both, unless their sums are too many for the registers.
// kSplits: 2 where there are few blocks: twice the warps, four for every other tile of queries.
template <typename Shape, typename ValueShape, int kSplits, bool kDk, bool kDv, bool kCapped>
__global__ void __launch_bounds__(kSplits* kTensorThreads)
    TensorKeyGradientKernel(AttentionBackwardArgs args, const float* delta) {
  constexpr int kRows = Shape::kRows, kTile = Shape::kTile;
  const int split = threadIdx.x / kTensorThreads, thread = threadIdx.x % kTensorThreads;
  const AttentionArgs& f = args.forward;
  Bf16* const keys = SharedMemory<Bf16>();
  Bf16* const values = keys + Shape::kRowsElements;
  Bf16* const all_stages = values + ValueShape::kRowsElements;
  // Queries, and the gradients of their outputs.
  Bf16* const stages = all_stages + split * 2 * kStageElements<Shape, ValueShape>;
  const int dim = static_cast<int>(f.head_dim), value_dim = static_cast<int>(f.value_dim);
  const int lane = threadIdx.x % kWarp;
  const int row = thread / kWarp * kWarpRows;
  // The first keys are seen by the most queries: those of all heads begin first.
  const uint32_t kv_heads = static_cast<uint32_t>(f.kv_heads);
  const int64_t kv_head = blockIdx.x % kv_heads, group = f.heads / f.kv_heads;
  const int64_t first = static_cast<int64_t>(blockIdx.x / kv_heads) * kRows;
  const int64_t last = first + kRows < f.tokens ? first + kRows : f.tokens;
  const ScoreFactors factors_of = FactorsOf(f);
  int64_t keys_of[2], ends[2];  // a key that is not there is seen by none
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    keys_of[r] = first + row + lane / 4 + 8 * r;
    ends[r] = keys_of[r] < last ? SightEnd(f, keys_of[r]) : 0;
  }
  // All of the warp's keys are seen by the queries from its last key to the last that sees its
  // first.
  const int64_t warp_last = first + row + kWarpRows - 1;
  const int64_t warp_end = first + row < last ? SightEnd(f, first + row) : 0;

  // The tiles of queries, head by head: a split has every kSplits-th one.
  const int64_t tiles = (SightEnd(f, last - 1) - first + kTile - 1) / kTile;
  if (split == 0) {
    CopyRows<Shape, kRows>(static_cast<const Bf16*>(f.k) + kv_head * dim, f.k_stride, first, last,
                           dim, keys, thread);
  }
  if (split == kSplits - 1) {
    CopyRows<ValueShape, kRows>(static_cast<const Bf16*>(f.v) + kv_head * value_dim, f.v_stride,
                                first, last, value_dim, values, thread);
  }
  const int64_t heads_end = (kv_head + 1) * group;
  int64_t next_head = kv_head * group, next_query = first;
  const auto advance = [&](int steps) {
    for (next_query += steps * kTile; next_query >= first + tiles * kTile; ++next_head) {
      next_query -= tiles * kTile;
    }
  };
  advance(split);
  if (next_head < heads_end) {
    CopyQueryTile<Shape, ValueShape>(args, next_head, next_query, stages, thread);
  }
  CommitCopies();

  typename Shape::Sums dk;
  typename ValueShape::Sums dv;
  ClearSums<Shape>(dk);
  ClearSums<ValueShape>(dv);
  // As many rounds for each split: they meet.
  const int64_t rounds = (group * tiles + kSplits - 1) / kSplits;
  for (int64_t round = 0, stage = 0; round < rounds; ++round, stage ^= 1) {
    const Bf16* const queries = stages + stage * kStageElements<Shape, ValueShape>;
    const Bf16* const douts = queries + Shape::kTileElements;
    const int64_t query = next_query;
    const bool has_tile = next_head < heads_end;
    const float* const lse = f.lse + next_head * f.tokens;
    const float* const deltas = delta + next_head * f.tokens;
    advance(kSplits);
    WaitForCopies<0>();
    __syncthreads();  // this stage is there, the other is done with
    if (next_head < heads_end) {
      CopyQueryTile<Shape, ValueShape>(args, next_head, next_query,
                                       stages + (stage ^ 1) * kStageElements<Shape, ValueShape>,
                                       thread);
      CommitCopies();
    }
    if (!has_tile) continue;  // the last round of an odd number of tiles
    // A lane loads one column's, long before they are needed.
    const int64_t mine = query + lane % kTile;
    const bool there = mine < f.tokens;
    const float my_lse = there ? lse[mine] * kLog2OfE : 0.0f;
    const float my_delta = kDk && there ? deltas[mine] : 0.0f;
    typename Shape::Scores p, dp;
    RowsByTile<Shape>(keys, row, queries, p);
    if (kDk) RowsByTile<ValueShape>(values, row, douts, dp);
    if (kCapped) Cap<Shape>(factors_of.cap, p);
    if (query < warp_last || query + kTile > warp_end) Mask<Shape>(query, keys_of, ends, p);
    ScoreGradients<Shape, kDk, kCapped>(factors_of.exponent, my_lse, my_delta, p, dp);
    if (kDv) ScoresByTile<ValueShape>(p, douts, dv);
    if (kDk) ScoresByTile<Shape>(dp, queries, dk);
  }
  if constexpr (kSplits > 1) {
    float* const shared = reinterpret_cast<float*>(all_stages);
    if (kDk) AddSplit<Shape>(dk, shared);
    if (kDv) AddSplit<ValueShape>(dv, shared);
    if (split > 0) return;
  }
  const float scales[2] = {f.scale, f.scale}, ones[2] = {1.0f, 1.0f};
  if (kDk) {
    StoreRows<Shape>(dk, scales, keys + row * Shape::kStride, row, first, last, dim, args.dk_stride,
                     static_cast<Bf16*>(args.dk) + kv_head * dim);
  }
  if (kDv) {
    StoreRows<ValueShape>(dv, ones, values + row * ValueShape::kStride, row, first, last, value_dim,
                          args.dv_stride, static_cast<Bf16*>(args.dv) + kv_head * value_dim);
  }
}

template <typename Shape, typename ValueShape, bool kCapped>
int LaunchQueryGradient(const Queue& queue, const AttentionBackwardArgs& args, const float* delta) {
  const AttentionArgs& f = args.forward;
  const dim3 grid(static_cast<unsigned>(CeilDiv(f.tokens, Shape::kRows)),
                  static_cast<unsigned>(f.heads), 1);
  return Launch(TensorQueryGradientKernel<Shape, ValueShape, kCapped>, grid, kTensorThreads,
                kSharedBytes<Shape, ValueShape, 1>, queue, args, delta);
}

template <typename Shape, typename ValueShape, int kSplits, bool kCapped>
int LaunchKeyGradient(const Queue& queue, const AttentionBackwardArgs& args, const float* delta) {
  const AttentionArgs& f = args.forward;
  // In one dimension: the others end at 65,535 blocks, 4 million tokens here.
  const dim3 grid = Grid(f.kv_heads * CeilDiv(f.tokens, Shape::kRows));
  const auto launch = [&](auto kernel) {
    return Launch(kernel, grid, kSplits * kTensorThreads, kSharedBytes<Shape, ValueShape, kSplits>,
                  queue, args, delta);
  };
  // A thread's sums of both gradients, of 255 registers.
  constexpr int kSums = (Shape::kDim + ValueShape::kDim) / 2;
  if constexpr (kSums <= 160) {
    return launch(TensorKeyGradientKernel<Shape, ValueShape, kSplits, true, true, kCapped>);
  } else {
    const int error =
        launch(TensorKeyGradientKernel<Shape, ValueShape, kSplits, true, false, kCapped>);
    if (error != 0) return error;
    return launch(TensorKeyGradientKernel<Shape, ValueShape, kSplits, false, true, kCapped>);
  }
}

// Returns true if the blocks of keys are too few to give an H200's 132 multiprocessors two each.
// The answer is the same on every card, and so is the order of sums.
bool FewKeyBlocks(const AttentionArgs& args) {
  return args.kv_heads * CeilDiv(args.tokens, kTensorWarps * kWarpRows) < 2 * 132;
}

// The sizes of heads, and the rows of a tile of keys, of one of queries, and of one of queries
// where blocks are split, whose stages are twice as many (0: never).
template <int kDimMax, int kValueDimMax, int kKeyTileRows, int kQueryTileRows, int kSplitTileRows>
struct Tiles {
  static constexpr int kDim = kDimMax, kValueDim = kValueDimMax;
  static constexpr int kKeyTile = kKeyTileRows, kQueryTile = kQueryTileRows;
  static constexpr int kSplitTile = kSplitTileRows;
};

template <typename Of, bool kCapped>
int LaunchCapped(const Queue& queue, const AttentionBackwardArgs& args, const float* delta) {
  const int error =
      LaunchQueryGradient<TensorShape<Of::kDim, Of::kKeyTile>,
                          TensorShape<Of::kValueDim, Of::kKeyTile>, kCapped>(queue, args, delta);
  if (error != 0) return error;
  if constexpr (Of::kSplitTile != 0) {
    if (queue.paths.split_sums && FewKeyBlocks(args.forward)) {
      return LaunchKeyGradient<TensorShape<Of::kDim, Of::kSplitTile>,
                               TensorShape<Of::kValueDim, Of::kSplitTile>, 2, kCapped>(queue, args,
                                                                                       delta);
    }
  }
  return LaunchKeyGradient<TensorShape<Of::kDim, Of::kQueryTile>,
                           TensorShape<Of::kValueDim, Of::kQueryTile>, 1, kCapped>(queue, args,
                                                                                   delta);
}

template <typename Of>
int LaunchOf(const Queue& queue, const AttentionBackwardArgs& args, const float* delta) {
  return args.forward.shaping.softcap > 0 ? LaunchCapped<Of, true>(queue, args, delta)
                                          : LaunchCapped<Of, false>(queue, args, delta);
}

}  // namespace

int TensorAttentionGradients(const Queue& queue, const AttentionBackwardArgs& args,
                             const float* delta) {
  const int64_t dim = LargestDim(args.forward);
  if (HasNarrowValues(args.forward))
    return LaunchOf<Tiles<192, 128, 32, 16, 0>>(queue, args, delta);
  if (dim <= 64) return LaunchOf<Tiles<64, 64, 32, 32, 32>>(queue, args, delta);
  if (dim <= 96) return LaunchOf<Tiles<96, 96, 32, 32, 32>>(queue, args, delta);
  if (dim <= 128) return LaunchOf<Tiles<128, 128, 32, 32, 16>>(queue, args, delta);
  if (dim <= 256) return LaunchOf<Tiles<256, 256, 16, 16, 0>>(queue, args, delta);
  return kInvalidValue;
}

}  // namespace megatrain::cuda

// Causal attention inside documents in BF16 on tensor cores: a block has 64 queries of one head and
// goes over the keys that any of them sees with an online softmax (Dao 2023). The scores' exponents
// are to base 2, and the probabilities are rounded to BF16 before they meet the values.
#include "engine/device/cuda/kernels/tensor_attention.h"

namespace megatrain::cuda {
namespace {

// The state for rows g and g + 8 of a warp.
struct Softmax {
  float largest[2];
  float total[2];  // of this thread's columns
};

// Scores become probabilities times exp2(largest); what was summed before is scaled to the new
// largest.
template <typename ValueShape>
__device__ void Exponentials(float scale, typename ValueShape::Scores& s, Softmax& softmax,
                             typename ValueShape::Sums& sums) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = -INFINITY;
#pragma unroll
    for (int n = 0; n < ValueShape::kTile / 8; ++n) {
      largest = fmaxf(largest, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
    }
    // A row's columns lie in four threads side by side.
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
    const float now = fmaxf(softmax.largest[r], largest * scale);
    const bool none = now == -INFINITY;  // exp(-inf - -inf) is no number
    const float before = none ? 0.0f : Exp2(softmax.largest[r] - now);
    float total = 0;
#pragma unroll
    for (int n = 0; n < ValueShape::kTile / 8; ++n) {
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        s[n][i] = none ? 0.0f : Exp2(s[n][i] * scale - now);
        total += s[n][i];
      }
    }
    softmax.total[r] = softmax.total[r] * before + total;
    softmax.largest[r] = now;
#pragma unroll
    for (int n = 0; n < ValueShape::kDim / 8; ++n) {
      sums[n][2 * r] *= before;
      sums[n][2 * r + 1] *= before;
    }
  }
}

template <typename Shape, typename ValueShape, bool kCapped>
__global__ void __launch_bounds__(kTensorThreads) TensorAttentionKernel(AttentionArgs args) {
  static_assert(ValueShape::kStride <= Shape::kStride, "outputs pass through the queries' rows");
  constexpr int kRows = Shape::kRows, kTile = Shape::kTile;
  Bf16* const queries = SharedMemory<Bf16>();
  Bf16* const keys = queries + Shape::kRowsElements;
  Bf16* const values = keys + Shape::kTileElements;
  const int dim = static_cast<int>(args.head_dim), value_dim = static_cast<int>(args.value_dim);
  const int lane = threadIdx.x % kWarp;
  const int row = threadIdx.x / kWarp * kWarpRows;  // the warp's first in the block
  const int64_t head = blockIdx.y, kv_head = head / (args.heads / args.kv_heads);
  const Bf16* const k = static_cast<const Bf16*>(args.k) + kv_head * dim;
  const Bf16* const v = static_cast<const Bf16*>(args.v) + kv_head * value_dim;
  // The longest tiles of a document are its last: they begin first.
  const int64_t first = (gridDim.x - 1 - static_cast<int64_t>(blockIdx.x)) * kRows;
  const int64_t last = first + kRows < args.tokens ? first + kRows : args.tokens;
  const int64_t warp_last = first + row + kWarpRows < last ? first + row + kWarpRows : last;

  int64_t queries_of[2], starts[2], ends[2];  // a row that is not there sees nothing
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    queries_of[r] = first + row + lane / 4 + 8 * r;
    starts[r] = queries_of[r] < last ? SightStart(args, queries_of[r]) : args.tokens;
    ends[r] = queries_of[r] + 1;
  }
  // The first key that the last of the warp's rows sees. All rows see the keys from there to the
  // first row.
  const int64_t warp_start = SightStart(args, warp_last - 1);

  // A sink is one more score, of the first of the threads that share a row.
  const float sink = SinkOf<Bf16>(args.shaping, head) * kLog2OfE;
  const float sink_total = args.shaping.sinks != nullptr && lane % 4 == 0 ? 1.0f : 0.0f;
  Softmax softmax = {{sink, sink}, {sink_total, sink_total}};
  const ScoreFactors factors_of = FactorsOf(args);
  typename ValueShape::Sums sums;
  ClearSums<ValueShape>(sums);
  int64_t key = SightStart(args, first) / kTile * kTile;
  CopyRows<Shape, kRows>(static_cast<const Bf16*>(args.q) + head * dim, args.q_stride, first, last,
                         dim, queries);
  CopyRows<Shape, kTile>(k, args.k_stride, key, last, dim, keys);
  CommitCopies();
  for (; key < last; key += kTile) {
    WaitForCopies<0>();
    __syncthreads();  // the keys are there, the values before are done with
    CopyRows<ValueShape, kTile>(v, args.v_stride, key, last, value_dim, values);
    CommitCopies();
    typename Shape::Scores s;
    RowsByTile<Shape>(queries, row, keys, s);
    if (kCapped) Cap<Shape>(factors_of.cap, s);
    if (key + kTile - 1 > first + row || key < warp_start) {
      Mask<Shape>(key, starts, ends, s);
    }
    Exponentials<ValueShape>(factors_of.exponent, s, softmax, sums);
    WaitForCopies<0>();
    __syncthreads();  // the values are there, the keys are done with
    if (key + kTile < last) {
      CopyRows<Shape, kTile>(k, args.k_stride, key + kTile, last, dim, keys);
      CommitCopies();
    }
    ScoresByTile<ValueShape>(s, values, sums);
  }

  float factors[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = softmax.total[r];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    factors[r] = 1.0f / total;
    if (lane % 4 == 0 && queries_of[r] < last) {
      args.lse[head * args.tokens + queries_of[r]] = (softmax.largest[r] + log2f(total)) * kLnOf2;
    }
  }
  StoreRows<ValueShape>(sums, factors, queries + row * Shape::kStride, row, first, last, value_dim,
                        args.heads * value_dim, static_cast<Bf16*>(args.out) + head * value_dim);
}

template <typename Shape, typename ValueShape = Shape>
int LaunchOf(const Queue& queue, const AttentionArgs& args) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.tokens, Shape::kRows)),
                  static_cast<unsigned>(args.heads), 1);
  const int shared = (Shape::kRowsElements + Shape::kTileElements + ValueShape::kTileElements) *
                     static_cast<int>(sizeof(Bf16));
  const auto launch = [&](auto kernel) {
    return Launch(kernel, grid, kTensorThreads, shared, queue, args);
  };
  return args.shaping.softcap > 0 ? launch(TensorAttentionKernel<Shape, ValueShape, true>)
                                  : launch(TensorAttentionKernel<Shape, ValueShape, false>);
}

}  // namespace

int TensorAttention(const Queue& queue, const AttentionArgs& args) {
  if (HasNarrowValues(args)) {
    return LaunchOf<TensorShape<192, 64>, TensorShape<128, 64>>(queue, args);
  }
  const int64_t dim = LargestDim(args);
  if (dim <= 64) return LaunchOf<TensorShape<64, 64>>(queue, args);
  if (dim <= 96) return LaunchOf<TensorShape<96, 64>>(queue, args);
  if (dim <= 128) return LaunchOf<TensorShape<128, 64>>(queue, args);
  if (dim <= 256) return LaunchOf<TensorShape<256, 32>>(queue, args);
  return kInvalidValue;
}

}  // namespace megatrain::cuda

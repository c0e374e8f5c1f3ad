// Causal attention inside documents, tile by tile with an online softmax (Dao et al. 2022): a block
// has a tile of queries of one head and goes over the keys that any of them sees.
#include "engine/device/cuda/kernels/attention_tile.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/tensor_attention.h"

namespace megatrain::cuda {
namespace {

template <typename Shape, typename T, bool kCapped>
__global__ void AttentionKernel(AttentionArgs args) {
  constexpr int kRows = Shape::kRows, kTile = Shape::kTile;
  float* const queries = SharedMemory<float>();
  float* const keys = queries + Shape::kTileFloats;  // then values
  float* const scores = keys + Shape::kTileFloats;
  const int dim = static_cast<int>(args.head_dim), value_dim = static_cast<int>(args.value_dim);
  const int y = ThreadRow(), x = ThreadColumn();
  const int64_t head = blockIdx.y, kv_head = head / (args.heads / args.kv_heads);
  const T* const q = static_cast<const T*>(args.q) + head * dim;
  const T* const k = static_cast<const T*>(args.k) + kv_head * dim;
  const T* const v = static_cast<const T*>(args.v) + kv_head * value_dim;
  // The longest tiles of a document are its last: they begin first.
  const int64_t first = (gridDim.x - 1 - static_cast<int64_t>(blockIdx.x)) * kTile;
  const int64_t last = first + kTile < args.tokens ? first + kTile : args.tokens;

  int64_t starts[kRows];  // of what the rows see; tokens: a row that is not there sees nothing
  float largest[kRows], total[kRows], sums[kRows][Shape::kColumns];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first + y + r * kAttentionSide;
    starts[r] = row < last ? SightStart(args, row) : args.tokens;
    largest[r] = SinkOf<T>(args.shaping, head);
    total[r] = args.shaping.sinks != nullptr ? 1.0f : 0.0f;
  }
  ClearSums<Shape>(sums);
  LoadTile<Shape>(q, args.q_stride, first, last, dim, args.scale, queries);

  for (int64_t key = SightStart(args, first) / kTile * kTile; key < last; key += kTile) {
    __syncthreads();  // the values before are done with, and the queries are there
    LoadTile<Shape>(k, args.k_stride, key, last, dim, 1.0f, keys);
    __syncthreads();
    float s[kRows][kRows];
    RowsByRows<Shape>(queries, keys, dim, s);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first + y + r * kAttentionSide;
      float tile_largest = -INFINITY;
#pragma unroll
      for (int c = 0; c < kRows; ++c) {
        const int64_t column = key + x + c * kAttentionSide;
        if (kCapped) s[r][c] = args.shaping.softcap * tanhf(s[r][c] / args.shaping.softcap);
        if (column > row || column < starts[r]) s[r][c] = -INFINITY;
        tile_largest = fmaxf(tile_largest, s[r][c]);
      }
      // The 16 threads of a row lie side by side in one warp.
#pragma unroll
      for (int step = kAttentionSide / 2; step > 0; step /= 2) {
        tile_largest = fmaxf(tile_largest, __shfl_xor_sync(~0u, tile_largest, step));
      }
      const float now = fmaxf(largest[r], tile_largest);
      const bool none = now == -INFINITY;  // exp(-inf - -inf) is no number
      const float before = none ? 0.0f : expf(largest[r] - now);
      float tile_total = 0;
#pragma unroll
      for (int c = 0; c < kRows; ++c) {
        const float p = none ? 0.0f : expf(s[r][c] - now);
        scores[(y + r * kAttentionSide) * Shape::kScoreStride + x + c * kAttentionSide] = p;
        tile_total += p;
      }
#pragma unroll
      for (int step = kAttentionSide / 2; step > 0; step /= 2) {
        tile_total += __shfl_xor_sync(~0u, tile_total, step);
      }
      total[r] = total[r] * before + tile_total;
      largest[r] = now;
#pragma unroll
      for (int c = 0; c < Shape::kColumns; ++c) sums[r][c] *= before;
    }
    __syncthreads();  // the keys are done with, and the scores are there
    LoadTile<Shape>(v, args.v_stride, key, last, value_dim, 1.0f, keys);
    __syncthreads();
    ScoresByRows<Shape, false>(scores, keys, value_dim, sums);
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first + y + r * kAttentionSide;
    if (row >= last) continue;
    T* const out = static_cast<T*>(args.out) + (row * args.heads + head) * value_dim;
#pragma unroll
    for (int c = 0; c < Shape::kColumns; ++c) {
      const int column = x + c * kAttentionSide;
      if (column < value_dim) out[column] = FromFloat<T>(sums[r][c] / total[r]);
    }
    if (x == 0) args.lse[head * args.tokens + row] = largest[r] + logf(total[r]);
  }
}

}  // namespace

int Attention(const Queue& queue, const AttentionArgs& args) {
  if (args.tokens == 0) return 0;
  if (FitsTensorCores(queue, args)) return TensorAttention(queue, args);
  return WithAttentionTileShape(args, [&]<typename Shape>() {
    const dim3 grid(static_cast<unsigned>(CeilDiv(args.tokens, Shape::kTile)),
                    static_cast<unsigned>(args.heads), 1);
    const int shared =
        (2 * Shape::kTileFloats + Shape::kScoreFloats) * static_cast<int>(sizeof(float));
    const auto launch = [&](auto kernel) {
      return Launch(kernel, grid, kAttentionThreads, shared, queue, args);
    };
    if (args.shaping.softcap > 0) {
      return args.dtype == DType::kF32 ? launch(AttentionKernel<Shape, float, true>)
                                       : launch(AttentionKernel<Shape, Bf16, true>);
    }
    return args.dtype == DType::kF32 ? launch(AttentionKernel<Shape, float, false>)
                                     : launch(AttentionKernel<Shape, Bf16, false>);
  });
}

}  // namespace megatrain::cuda

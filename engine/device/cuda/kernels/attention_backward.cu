// The gradient of attention in three kernels without atomics: delta = rowsum(dO * O); dQ by tiles
// of queries; dK and dV by tiles of keys, over the queries of the group's heads. With
//   P = exp(S - lse), dP = dO V^T, dS = P * (dP - delta):  dV = P^T dO, dQ = scale dS K,
//   dK = scale dS^T Q.
// The scores are computed again in both, which memory linear in the sequence asks for. A softcap
// gives dS the further factor 1 - (S / softcap)^2. The gradient of a head's sink is the sum of
// -exp(sink - lse) * delta over its queries.
#include "engine/device/cuda/kernels/attention_tile.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/tensor_attention.h"

namespace megatrain::cuda {
namespace {

constexpr int kDeltaThreads = 256;

// A warp a (token, head); kPack elements a load.
template <typename T, int kPack>
__global__ void DeltaKernel(AttentionBackwardArgs args, float* delta) {
  const AttentionArgs& f = args.forward;
  const int64_t item =
      static_cast<int64_t>(blockIdx.x) * (kDeltaThreads / kWarp) + threadIdx.x / kWarp;
  if (item >= f.tokens * f.heads) return;
  const T* const out = static_cast<const T*>(f.out) + item * f.value_dim;
  const T* const dout = static_cast<const T*>(args.dout) + item * f.value_dim;
  float sum = 0;
  for (int64_t i = threadIdx.x % kWarp * kPack; i < f.value_dim; i += kWarp * kPack) {
    float a[kPack], b[kPack];
    Load(out + i, a);
    Load(dout + i, b);
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum += a[j] * b[j];
  }
  sum = TeamSum<kWarp>(sum, nullptr);
  if (threadIdx.x % kWarp == 0) delta[item % f.heads * f.tokens + item / f.heads] = sum;
}

constexpr int kSinkThreads = 256;

// A block a head; each thread adds up every kSinkThreads-th token.
template <typename T>
__global__ void SinkGradientKernel(AttentionBackwardArgs args, const float* delta) {
  const AttentionArgs& f = args.forward;
  const int64_t head = blockIdx.x;
  const float sink = SinkOf<T>(f.shaping, head);
  float sum = 0;
  for (int64_t t = threadIdx.x; t < f.tokens; t += kSinkThreads) {
    sum += expf(sink - f.lse[head * f.tokens + t]) * delta[head * f.tokens + t];
  }
  sum = TeamSum<kSinkThreads>(sum, SharedMemory<float>());
  if (threadIdx.x == 0) args.dsinks[head] = (args.add_dsinks ? args.dsinks[head] : 0.0f) - sum;
}

// P of the tile (queries from `query`, keys from `key`) from its scores; masked ones are 0. With a
// softcap, `slopes` becomes the derivative of the scores by what they were before it.
template <typename Shape, bool kCapped>
__device__ void Probabilities(const AttentionArgs& args, int64_t head, int64_t query, int64_t key,
                              float (&s)[Shape::kRows][Shape::kRows],
                              float (&slopes)[Shape::kRows][Shape::kRows]) {
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
    const int64_t row = query + ThreadRow() + r * kAttentionSide;
    const bool there = row < args.tokens;
    const int64_t start = there ? SightStart(args, row) : args.tokens;
    const float lse = there ? args.lse[head * args.tokens + row] : 0.0f;
#pragma unroll
    for (int c = 0; c < Shape::kRows; ++c) {
      const int64_t column = key + ThreadColumn() + c * kAttentionSide;
      if (kCapped) {
        const float capped = tanhf(s[r][c] / args.shaping.softcap);
        s[r][c] = args.shaping.softcap * capped;
        slopes[r][c] = 1.0f - capped * capped;
      }
      s[r][c] = there && column <= row && column >= start ? expf(s[r][c] - lse) : 0.0f;
    }
  }
}

// dS from P and dP, in place of dP.
template <typename Shape, bool kCapped>
__device__ void ScoreGradients(const AttentionArgs& args, const float* delta, int64_t head,
                               int64_t query, const float (&p)[Shape::kRows][Shape::kRows],
                               const float (&slopes)[Shape::kRows][Shape::kRows],
                               float (&dp)[Shape::kRows][Shape::kRows]) {
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
    const int64_t row = query + ThreadRow() + r * kAttentionSide;
    const float of_row = row < args.tokens ? delta[head * args.tokens + row] : 0.0f;
#pragma unroll
    for (int c = 0; c < Shape::kRows; ++c) {
      dp[r][c] = p[r][c] * (dp[r][c] - of_row);
      if (kCapped) dp[r][c] *= slopes[r][c];
    }
  }
}

template <typename Shape>
__device__ void StoreScores(const float (&s)[Shape::kRows][Shape::kRows], float* scores) {
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
#pragma unroll
    for (int c = 0; c < Shape::kRows; ++c) {
      scores[(ThreadRow() + r * kAttentionSide) * Shape::kScoreStride + ThreadColumn() +
             c * kAttentionSide] = s[r][c];
    }
  }
}

template <typename Shape, typename T>
__device__ void StoreRows(const float (&sums)[Shape::kRows][Shape::kColumns], float scale,
                          int64_t first, int64_t last, int dim, int64_t stride, T* head) {
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
    const int64_t row = first + ThreadRow() + r * kAttentionSide;
    if (row >= last) continue;
#pragma unroll
    for (int c = 0; c < Shape::kColumns; ++c) {
      const int column = ThreadColumn() + c * kAttentionSide;
      if (column < dim) head[row * stride + column] = FromFloat<T>(scale * sums[r][c]);
    }
  }
}

template <typename Shape, typename T, bool kCapped>
__global__ void QueryGradientKernel(AttentionBackwardArgs args, const float* delta) {
  constexpr int kTile = Shape::kTile;
  const AttentionArgs& f = args.forward;
  float* const queries = SharedMemory<float>();
  float* const douts = queries + Shape::kTileFloats;
  float* const keys = douts + Shape::kTileFloats;  // and values, in turn
  float* const scores = keys + Shape::kTileFloats;
  const int dim = static_cast<int>(f.head_dim), value_dim = static_cast<int>(f.value_dim);
  const int64_t head = blockIdx.y, kv_head = head / (f.heads / f.kv_heads);
  const T* const k = static_cast<const T*>(f.k) + kv_head * dim;
  const T* const v = static_cast<const T*>(f.v) + kv_head * value_dim;
  const int64_t first = (gridDim.x - 1 - static_cast<int64_t>(blockIdx.x)) * kTile;
  const int64_t last = first + kTile < f.tokens ? first + kTile : f.tokens;
  LoadTile<Shape>(static_cast<const T*>(f.q) + head * dim, f.q_stride, first, last, dim, f.scale,
                  queries);
  LoadTile<Shape>(static_cast<const T*>(args.dout) + head * value_dim, f.heads * value_dim, first,
                  last, value_dim, 1.0f, douts);
  float sums[Shape::kRows][Shape::kColumns];
  ClearSums<Shape>(sums);
  for (int64_t key = SightStart(f, first) / kTile * kTile; key < last; key += kTile) {
    __syncthreads();
    LoadTile<Shape>(v, f.v_stride, key, last, value_dim, 1.0f, keys);
    __syncthreads();
    float dp[Shape::kRows][Shape::kRows], p[Shape::kRows][Shape::kRows];
    float slopes[Shape::kRows][Shape::kRows];
    RowsByRows<Shape>(douts, keys, value_dim, dp);
    __syncthreads();
    LoadTile<Shape>(k, f.k_stride, key, last, dim, 1.0f, keys);
    __syncthreads();
    RowsByRows<Shape>(queries, keys, dim, p);
    Probabilities<Shape, kCapped>(f, head, first, key, p, slopes);
    ScoreGradients<Shape, kCapped>(f, delta, head, first, p, slopes, dp);
    StoreScores<Shape>(dp, scores);
    __syncthreads();
    ScoresByRows<Shape, false>(scores, keys, dim, sums);
  }
  StoreRows<Shape>(sums, f.scale, first, last, dim, args.dq_stride,
                   static_cast<T*>(args.dq) + head * dim);
}

template <typename Shape, typename T, bool kCapped>
__global__ void KeyGradientKernel(AttentionBackwardArgs args, const float* delta) {
  constexpr int kTile = Shape::kTile;
  const AttentionArgs& f = args.forward;
  float* const keys = SharedMemory<float>();
  float* const values = keys + Shape::kTileFloats;
  float* const queries = values + Shape::kTileFloats;  // and output gradients, in turn
  float* const scores = queries + Shape::kTileFloats;
  const int dim = static_cast<int>(f.head_dim), value_dim = static_cast<int>(f.value_dim);
  const int64_t kv_head = blockIdx.y, group = f.heads / f.kv_heads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t last = first + kTile < f.tokens ? first + kTile : f.tokens;
  LoadTile<Shape>(static_cast<const T*>(f.k) + kv_head * dim, f.k_stride, first, last, dim, 1.0f,
                  keys);
  LoadTile<Shape>(static_cast<const T*>(f.v) + kv_head * value_dim, f.v_stride, first, last,
                  value_dim, 1.0f, values);
  float dk[Shape::kRows][Shape::kColumns], dv[Shape::kRows][Shape::kColumns];
  ClearSums<Shape>(dk);
  ClearSums<Shape>(dv);
  const int64_t queries_end = SightEnd(f, last - 1);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const T* const q = static_cast<const T*>(f.q) + head * dim;
    const T* const dout = static_cast<const T*>(args.dout) + head * value_dim;
    for (int64_t query = first; query < queries_end; query += kTile) {
      __syncthreads();
      LoadTile<Shape>(q, f.q_stride, query, f.tokens, dim, f.scale, queries);
      __syncthreads();
      float p[Shape::kRows][Shape::kRows], dp[Shape::kRows][Shape::kRows];
      float slopes[Shape::kRows][Shape::kRows];
      RowsByRows<Shape>(queries, keys, dim, p);
      Probabilities<Shape, kCapped>(f, head, query, first, p, slopes);
      StoreScores<Shape>(p, scores);
      __syncthreads();
      LoadTile<Shape>(dout, f.heads * value_dim, query, f.tokens, value_dim, 1.0f, queries);
      __syncthreads();
      RowsByRows<Shape>(queries, values, value_dim, dp);
      ScoresByRows<Shape, true>(scores, queries, value_dim, dv);
      ScoreGradients<Shape, kCapped>(f, delta, head, query, p, slopes, dp);
      __syncthreads();
      StoreScores<Shape>(dp, scores);
      LoadTile<Shape>(q, f.q_stride, query, f.tokens, dim, f.scale, queries);
      __syncthreads();
      ScoresByRows<Shape, true>(scores, queries, dim, dk);
    }
  }
  // The queries were scaled.
  StoreRows<Shape>(dk, 1.0f, first, last, dim, args.dk_stride,
                   static_cast<T*>(args.dk) + kv_head * dim);
  StoreRows<Shape>(dv, 1.0f, first, last, value_dim, args.dv_stride,
                   static_cast<T*>(args.dv) + kv_head * value_dim);
}

template <typename Shape, typename T, bool kCapped>
int LaunchGradients(const Queue& queue, const AttentionBackwardArgs& args, const float* delta) {
  const AttentionArgs& f = args.forward;
  const unsigned tiles = static_cast<unsigned>(CeilDiv(f.tokens, Shape::kTile));
  const int shared =
      (3 * Shape::kTileFloats + Shape::kScoreFloats) * static_cast<int>(sizeof(float));
  const int error =
      Launch(QueryGradientKernel<Shape, T, kCapped>, dim3(tiles, static_cast<unsigned>(f.heads), 1),
             kAttentionThreads, shared, queue, args, delta);
  if (error != 0) return error;
  return Launch(KeyGradientKernel<Shape, T, kCapped>,
                dim3(tiles, static_cast<unsigned>(f.kv_heads), 1), kAttentionThreads, shared, queue,
                args, delta);
}

template <typename Shape, typename T>
int BackwardOf(const Queue& queue, const AttentionBackwardArgs& args) {
  const AttentionArgs& f = args.forward;
  float* const delta = static_cast<float*>(args.workspace);
  // Heads are short: packs of four, so that most lanes have one.
  constexpr int kPack = 4;
  const bool packs = f.value_dim % kPack == 0 && MovesPacks(queue, {f.out, args.dout}, {});
  int error = Launch(packs ? DeltaKernel<T, kPack> : DeltaKernel<T, 1>,
                     Grid(CeilDiv(f.tokens * f.heads, kDeltaThreads / kWarp)), kDeltaThreads, 0,
                     queue, args, delta);
  if (error != 0) return error;
  if (args.dsinks != nullptr) {
    error = Launch(SinkGradientKernel<T>, Grid(f.heads), kSinkThreads,
                   kSinkThreads / kWarp * int{sizeof(float)}, queue, args,
                   static_cast<const float*>(delta));
    if (error != 0) return error;
  }
  if (FitsTensorCores(queue, args)) return TensorAttentionGradients(queue, args, delta);
  return f.shaping.softcap > 0 ? LaunchGradients<Shape, T, true>(queue, args, delta)
                               : LaunchGradients<Shape, T, false>(queue, args, delta);
}

}  // namespace

int AttentionBackward(const Queue& queue, const AttentionBackwardArgs& args) {
  if (args.forward.tokens == 0) return 0;
  return WithAttentionTileShape(args.forward, [&]<typename Shape>() {
    return args.forward.dtype == DType::kF32 ? BackwardOf<Shape, float>(queue, args)
                                             : BackwardOf<Shape, Bf16>(queue, args);
  });
}

}  // namespace megatrain::cuda

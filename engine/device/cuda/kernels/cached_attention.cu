// Attention of single tokens over a cache of keys and values. A block has one query of one head.
// Its warps take the rows of the cache in turn, each with an online softmax of its own (Milakov &
// Gimelshein 2018), and are joined at the end in the order of their numbers.
#include "engine/device/cuda/kernels/attention_shaping.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

template <typename T>
__global__ void StoreInCacheKernel(CachedAttentionArgs args, uint32_t elements) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= elements) return;
  const uint32_t keys = static_cast<uint32_t>(args.kv_heads * args.head_dim);
  const uint32_t row = keys + static_cast<uint32_t>(args.kv_heads * args.value_dim);
  const uint32_t token = thread / row, i = thread - token * row;
  const int64_t first = args.first_rows[token];
  if (first < 0) return;
  const T* const from = i < keys
                            ? static_cast<const T*>(args.k) + token * args.k_stride + i
                            : static_cast<const T*>(args.v) + token * args.v_stride + (i - keys);
  static_cast<T*>(args.cache)[(first + args.positions[token]) * row + i] = *from;
}

// A lane has elements lane, lane + 32, ... of a key and of a value: kPerLane of each at most. The
// sink is the first warp's.
template <typename T, int kPerLane>
__global__ void CachedAttentionKernel(CachedAttentionArgs args) {
  float* const shared_largest = SharedMemory<float>();  // [kWarps]
  float* const shared_total = shared_largest + kWarps;  // [kWarps]
  float* const shared_sums = shared_total + kWarps;     // [kWarps, value_dim]
  const int dim = static_cast<int>(args.head_dim), value_dim = static_cast<int>(args.value_dim);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t token = blockIdx.x, head = blockIdx.y;
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  const int64_t row_elements = args.kv_heads * (dim + value_dim);
  // From a head's key to its value.
  const int64_t to_value = args.kv_heads * dim + kv_head * (value_dim - dim);
  T* const out = static_cast<T*>(args.out) + (token * args.heads + head) * value_dim;
  const int64_t first = args.first_rows[token];
  if (first < 0) {
    for (int i = threadIdx.x; i < value_dim; i += kThreads) out[i] = FromFloat<T>(0.0f);
    return;
  }
  const T* const query = static_cast<const T*>(args.q) + token * args.q_stride + head * dim;
  const T* const cache = static_cast<const T*>(args.cache) + first * row_elements + kv_head * dim;
  const bool has_sink = warp == 0 && args.shaping.sinks != nullptr;
  const float softcap = args.shaping.softcap;
  float q[kPerLane], sums[kPerLane];
  float largest = has_sink ? SinkOf<T>(args.shaping, head) : -INFINITY, total = has_sink ? 1 : 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int at = lane + i * kWarp;
    q[i] = at < dim ? args.scale * ToFloat(query[at]) : 0.0f;
    sums[i] = 0;
  }
  const int64_t rows = static_cast<int64_t>(args.positions[token]) + 1;
  const int64_t window = args.shaping.window;
  const int64_t seen = window > 0 && rows > window ? rows - window : 0;
  for (int64_t row = seen + warp; row < rows; row += kWarps) {
    const T* const key = cache + row * row_elements;
    float k[kPerLane], v[kPerLane], score = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int at = lane + i * kWarp;
      k[i] = at < dim ? ToFloat(key[at]) : 0.0f;
      v[i] = at < value_dim ? ToFloat(key[to_value + at]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) score += q[i] * k[i];
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) score += __shfl_xor_sync(~0u, score, step);
    if (softcap > 0) score = softcap * tanhf(score / softcap);
    const float now = fmaxf(largest, score);
    const float before = expf(largest - now), p = expf(score - now);
    total = total * before + p;
    largest = now;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sums[i] = sums[i] * before + p * v[i];
  }
  if (lane == 0) {
    shared_largest[warp] = largest;
    shared_total[warp] = total;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int at = lane + i * kWarp;
    if (at < value_dim) shared_sums[warp * value_dim + at] = sums[i];
  }
  __syncthreads();
  float all_largest = -INFINITY, all_total = 0;
  for (int w = 0; w < kWarps; ++w) all_largest = fmaxf(all_largest, shared_largest[w]);
  for (int w = 0; w < kWarps; ++w) {
    all_total += shared_total[w] * expf(shared_largest[w] - all_largest);
  }
  for (int i = threadIdx.x; i < value_dim; i += kThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) {
      sum += shared_sums[w * value_dim + i] * expf(shared_largest[w] - all_largest);
    }
    out[i] = FromFloat<T>(sum / all_total);
  }
}

template <typename T>
int LaunchStore(const Queue& queue, const CachedAttentionArgs& args) {
  const int64_t elements = args.tokens * args.cache_row();
  if (elements == 0) return 0;
  if (elements > kThreadsMax) return kInvalidValue;
  return Launch(StoreInCacheKernel<T>, Grid(CeilDiv(elements, kThreads)), kThreads, 0, queue, args,
                static_cast<uint32_t>(elements));
}

template <typename T>
int LaunchAttention(const Queue& queue, const CachedAttentionArgs& args) {
  if (args.tokens == 0) return 0;
  const dim3 grid(static_cast<unsigned>(args.tokens), static_cast<unsigned>(args.heads), 1);
  const int shared =
      static_cast<int>((2 * kWarps + kWarps * args.value_dim) * int64_t{sizeof(float)});
  const auto launch = [&](auto kernel) {
    return Launch(kernel, grid, kThreads, shared, queue, args);
  };
  const int64_t dim = LargestDim(args);
  if (dim <= 2 * kWarp) return launch(CachedAttentionKernel<T, 2>);
  if (dim <= 4 * kWarp) return launch(CachedAttentionKernel<T, 4>);
  if (dim <= 8 * kWarp) return launch(CachedAttentionKernel<T, 8>);
  if (dim <= 16 * kWarp) return launch(CachedAttentionKernel<T, 16>);
  return kInvalidValue;
}

}  // namespace

int StoreInCache(const Queue& queue, const CachedAttentionArgs& args) {
  return args.dtype == DType::kF32 ? LaunchStore<float>(queue, args)
                                   : LaunchStore<Bf16>(queue, args);
}

int CachedAttention(const Queue& queue, const CachedAttentionArgs& args) {
  return args.dtype == DType::kF32 ? LaunchAttention<float>(queue, args)
                                   : LaunchAttention<Bf16>(queue, args);
}

}  // namespace megatrain::cuda

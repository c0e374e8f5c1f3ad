#include <algorithm>
#include <cstddef>
#include <cstring>

#include "engine/device/cpu/attention.h"
#include "engine/device/cpu/softmax_block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/cached_attention.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

// Rows of one head in the cache: element (row, i) is at row * stride + i.
template <typename T>
struct Rows {
  const T* data;
  int64_t count, stride;
};

// scores[g, row] = q[g] . key[row], for kGroup queries of `dim` elements. Rows of scores are
// `stride` apart.
template <int kGroup, typename T>
HWY_INLINE void Dots(const float* q, size_t dim, const Rows<T>& keys, int64_t stride,
                     float* scores) {
  for (int64_t row = 0; row < keys.count; ++row) {
    const T* const key = keys.data + row * keys.stride;
    VF sums[kGroup];
    for (int g = 0; g < kGroup; ++g) sums[g] = hn::Zero(DF());
    ForVectors(dim, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
      const VF k = LoadPart<kTail>(key + i, count);
      for (int g = 0; g < kGroup; ++g) {
        sums[g] =
            hn::MulAdd(LoadPart<kTail>(q + static_cast<size_t>(g) * dim + i, count), k, sums[g]);
      }
    });
    for (int g = 0; g < kGroup; ++g) scores[g * stride + row] = SumLanes(sums[g]);
  }
}

// out[g] += the sum over rows of p[g, row] * value[row].
template <int kGroup, typename T>
HWY_INLINE void AddWeighted(const float* p, int64_t stride, const Rows<T>& values, size_t dim,
                            float* out) {
  ForVectors(dim, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    VF sums[kGroup];
    for (int g = 0; g < kGroup; ++g) {
      sums[g] = LoadPart<kTail>(out + static_cast<size_t>(g) * dim + i, count);
    }
    for (int64_t row = 0; row < values.count; ++row) {
      const VF v = LoadPart<kTail>(values.data + row * values.stride + i, count);
      for (int g = 0; g < kGroup; ++g) {
        sums[g] = hn::MulAdd(hn::Set(DF(), p[g * stride + row]), v, sums[g]);
      }
    }
    for (int g = 0; g < kGroup; ++g) {
      StorePart<kTail>(sums[g], out + static_cast<size_t>(g) * dim + i, count);
    }
  });
}

// Calls body.template operator()<n>(first) for parts of n of `heads` heads.
template <typename Body>
HWY_INLINE void ForHeads(int64_t heads, const Body& body) {
  int64_t h = 0;
  for (; h + 4 <= heads; h += 4) body.template operator()<4>(h);
  for (; h < heads; ++h) body.template operator()<1>(h);
}

template <typename T>
void Attend(const CachedAttentionArgs& args, int64_t token, int64_t kv_head, int64_t block,
            float* scratch) {
  const int64_t group = args.heads / args.kv_heads, keys_width = args.kv_heads * args.head_dim;
  const size_t dim = static_cast<size_t>(args.head_dim);
  const size_t value_dim = static_cast<size_t>(args.value_dim);
  float* const scores = scratch;
  float* const q = scores + group * block;
  float* const sums = q + group * args.head_dim;
  float* const largest = sums + group * args.value_dim;
  float* const sum = largest + group;
  float* const lse = sum + group;
  int32_t* const first = reinterpret_cast<int32_t*>(lse + group);
  int32_t* const last = first + group;
  const T* const from =
      static_cast<const T*>(args.q) + token * args.q_stride + kv_head * group * args.head_dim;
  ForVectors(static_cast<size_t>(group) * dim, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    StorePart<kTail>(LoadPart<kTail>(from + i, count), q + i, count);
  });
  std::fill_n(sums, group * args.value_dim, 0.0f);
  for (int64_t h = 0; h < group; ++h) {
    largest[h] = SinkOf(args.shaping, args.dtype, kv_head * group + h);
  }
  std::fill_n(sum, group, args.shaping.sinks != nullptr ? 1.0f : 0.0f);
  std::fill_n(first, group, 0);
  SoftmaxStepArgs step{.rows = group,
                       .scale = args.scale,
                       .softcap = args.shaping.softcap,
                       .scores = scores,
                       .stride = block,
                       .p = scores,
                       .p_stride = block,
                       .first = first,
                       .last = last,
                       .largest = largest,
                       .sum = sum,
                       .accumulator = sums,
                       .dim = args.value_dim};
  const int64_t end = args.positions[token] + 1, window = args.shaping.window;
  for (int64_t row = window > 0 ? std::max<int64_t>(end - window, 0) : 0; row < end; row += block) {
    const int64_t count = std::min(block, end - row);
    const T* const at =
        static_cast<const T*>(args.cache) + (args.first_rows[token] + row) * args.cache_row();
    const Rows<T> keys{at + kv_head * args.head_dim, count, args.cache_row()};
    const Rows<T> values{at + keys_width + kv_head * args.value_dim, count, args.cache_row()};
    ForHeads(group, [&]<int kGroup>(int64_t h) HWY_ATTR {
      Dots<kGroup>(q + h * args.head_dim, dim, keys, block, scores + h * block);
    });
    step.columns = count;
    std::fill_n(last, group, static_cast<int32_t>(count));
    SoftmaxStep(step);
    ForHeads(group, [&]<int kGroup>(int64_t h) HWY_ATTR {
      AddWeighted<kGroup>(scores + h * block, block, values, value_dim, sums + h * args.value_dim);
    });
  }
  T* const out =
      static_cast<T*>(args.out) + (token * args.heads + kv_head * group) * args.value_dim;
  SoftmaxFinish(step, args.dtype, out, args.value_dim, lse);
}

void AttendOf(const CachedAttentionArgs& args, int64_t token, int64_t kv_head, int64_t block,
              float* scratch) {
  args.dtype == DType::kF32 ? Attend<float>(args, token, kv_head, block, scratch)
                            : Attend<bf16_t>(args, token, kv_head, block, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(AttendOf);

namespace {
// The rows of the cache that are scored at a time. Their values are still in the second-level cache
// when they are weighted: 512 rows of a head of 128 in FP32 are 256 KiB.
constexpr int64_t kBlock = 512;
}  // namespace

void StoreTokensInCache(const CachedAttentionArgs& args, int64_t begin, int64_t end) {
  const int64_t bytes = DTypeBytes(args.dtype), keys = args.kv_heads * args.head_dim * bytes;
  const int64_t row_bytes = args.cache_row() * bytes;
  for (int64_t t = begin; t < end; ++t) {
    if (args.first_rows[t] < 0) continue;
    char* const row = static_cast<char*>(args.cache) +
                      (static_cast<int64_t>(args.first_rows[t]) + args.positions[t]) * row_bytes;
    std::memcpy(row, static_cast<const char*>(args.k) + t * args.k_stride * bytes,
                static_cast<size_t>(keys));
    std::memcpy(row + keys, static_cast<const char*>(args.v) + t * args.v_stride * bytes,
                static_cast<size_t>(row_bytes - keys));
  }
}

void RunCachedAttention(const CachedAttentionArgs& args, ThreadPool* pool,
                        WorkspacePool* workspaces) {
  const int64_t group = args.heads / args.kv_heads;
  // For each head of the group a row of scores, the query, its sum of values, and five numbers.
  const int64_t floats = group * (kBlock + args.head_dim + args.value_dim + 5);
  pool->ParallelFor(args.tokens * args.kv_heads, [&](int64_t task) {
    const int64_t token = task / args.kv_heads;
    if (args.first_rows[token] < 0) {
      const int64_t bytes = group * args.value_dim * DTypeBytes(args.dtype);
      std::memset(static_cast<char*>(args.out) + task * bytes, 0, static_cast<size_t>(bytes));
      return;
    }
    const WorkspacePool::Lease workspace = workspaces->Take();
    HWY_DYNAMIC_DISPATCH(AttendOf)
    (args, token, task % args.kv_heads, kBlock, workspace->Floats(1, floats));
  });
}

}  // namespace megatrain
#endif  // HWY_ONCE

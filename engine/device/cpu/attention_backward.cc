#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/status.h"
#include "engine/device/cpu/attention.h"
#include "engine/device/cpu/attention_blocks.h"
#include "engine/device/cpu/softmax_block.h"

namespace megatrain {
namespace {

using attention::BlockMath;
using attention::CheckAttention;
using attention::HeadRows;
using attention::kBlock;
using attention::kChunk;
using attention::kScores;
using attention::kSlopes;
using attention::kSums;
using attention::kWideA;
using attention::kWideB;
using attention::kWideC;
using attention::kWideD;
using attention::RoundUp;
using attention::SightBounds;

// Documents are joined to segments of at least this many tokens, each one task a head.
constexpr int64_t kSegment = 512;

// Ends of documents that cut the tokens into segments no document crosses. Ends on the grid are
// taken as soon as a segment has kSegment tokens, others only when it has four times that, for
// blocks of odd shapes follow from them.
std::vector<int64_t> Segments(const AttentionArgs& args) {
  std::vector<int64_t> starts = {0};
  for (int64_t d = 1; d <= args.documents; ++d) {
    const int64_t end = args.document_starts[d];
    const int64_t tokens = end - starts.back();
    if (end == args.tokens || (tokens >= kSegment && tokens % kBlock == 0) ||
        tokens >= 4 * kSegment) {
      if (end > starts.back()) starts.push_back(end);
    }
  }
  return starts;
}

// One segment and one key-value head, all of its query heads; the only writer of their gradients,
// in an order that depends on the shapes alone. Scores are transposed (a row a key), so that P and
// dS enter two of the three products that use them as they lie.
class BackwardSegment {
 public:
  BackwardSegment(const AttentionBackwardArgs& args, const SightBounds& bounds,
                  const BlockMath& math, int64_t begin, int64_t end, int64_t kv_head,
                  Workspace& workspace)
      : args_(args),
        forward_(args.forward),
        bounds_(bounds),
        math_(math),
        begin_(begin),
        end_(end),
        kv_head_(kv_head),
        group_(args.forward.heads / args.forward.kv_heads),
        dim_(args.forward.head_dim),
        value_dim_(args.forward.value_dim),
        out_stride_(args.forward.heads * args.forward.value_dim),
        workspace_(workspace) {}

  absl::Status Run() {
    const int64_t tokens = end_ - begin_;
    for (int64_t head = kv_head_ * group_; head < (kv_head_ + 1) * group_; ++head) {
      const int64_t offset =
          (begin_ * out_stride_ + head * value_dim_) * DTypeBytes(forward_.dtype);
      RowDots(forward_.dtype, tokens, value_dim_, static_cast<const char*>(args_.dout) + offset,
              static_cast<const char*>(forward_.out) + offset, out_stride_, Delta(head, begin_));
      std::memset(DqSums(head, begin_), 0, static_cast<size_t>(tokens * dim_) * 4);
    }
    for (int64_t key = begin_; key < end_; key += kBlock) {
      MT_RETURN_IF_ERROR(KeyBlock(key, std::min(kBlock, end_ - key)));
    }
    for (int64_t head = kv_head_ * group_; head < (kv_head_ + 1) * group_; ++head) {
      math_.StoreRows(DqSums(head, begin_), tokens, args_.dq, args_.dq_stride, dim_, head, begin_);
    }
    return absl::OkStatus();
  }

 private:
  // FP32 [heads, tokens, head_dim] and [heads, tokens].
  float* DqSums(int64_t head, int64_t token) const {
    return static_cast<float*>(args_.workspace) + (head * forward_.tokens + token) * dim_;
  }
  float* Delta(int64_t head, int64_t token) const {
    return DqSums(forward_.heads, 0) + head * forward_.tokens + token;
  }

  absl::Status KeyBlock(int64_t key, int64_t keys) {
    float* dk = workspace_.Floats(kSums, kBlock * (dim_ + value_dim_));
    float* dv = dk + kBlock * dim_;
    std::memset(dk, 0, static_cast<size_t>(kBlock * (dim_ + value_dim_)) * 4);
    const HeadRows k =
        math_.Operand(forward_.k, forward_.k_stride, dim_, kv_head_, key, keys, kWideA, workspace_);
    const HeadRows v = math_.Operand(forward_.v, forward_.v_stride, value_dim_, kv_head_, key, keys,
                                     kWideB, workspace_);
    const int64_t last_seer = bounds_.end[static_cast<size_t>(key + keys - 1)];
    const int64_t query_end = std::min(end_, begin_ + RoundUp(last_seer - begin_, kBlock));
    for (int64_t head = kv_head_ * group_; head < (kv_head_ + 1) * group_; ++head) {
      for (int64_t query = key; query < query_end; query += kChunk) {
        MT_RETURN_IF_ERROR(
            Block(key, keys, query, std::min(kChunk, query_end - query), head, k, v, dk, dv));
      }
    }
    math_.StoreRows(dk, keys, args_.dk, args_.dk_stride, dim_, kv_head_, key);
    math_.StoreRows(dv, keys, args_.dv, args_.dv_stride, value_dim_, kv_head_, key);
    return absl::OkStatus();
  }

  absl::Status Block(int64_t key, int64_t keys, int64_t query, int64_t queries, int64_t head,
                     HeadRows k, HeadRows v, float* dk, float* dv) {
    float* scores = workspace_.Floats(kScores, kBlock * kChunk);
    float* slopes = workspace_.Floats(kSlopes, kBlock * kChunk);
    const HeadRows q = math_.Operand(forward_.q, forward_.q_stride, dim_, head, query, queries,
                                     kWideC, workspace_);
    const HeadRows dout = math_.Operand(args_.dout, out_stride_, value_dim_, head, query, queries,
                                        kWideD, workspace_);
    MT_RETURN_IF_ERROR(math_.Scores(keys, queries, k, q, scores, workspace_));
    MT_RETURN_IF_ERROR(math_.Scores(keys, queries, v, dout, slopes, workspace_));
    int32_t first[kBlock], last[kBlock];
    for (int64_t i = 0; i < keys; ++i) {
      first[i] = static_cast<int32_t>(key + i - query);
      last[i] = static_cast<int32_t>(bounds_.end[static_cast<size_t>(key + i)] - query);
    }
    SoftmaxBackwardBlock({.dtype = math_.compute,
                          .rows = keys,
                          .columns = queries,
                          .scale = forward_.scale,
                          .softcap = forward_.shaping.softcap,
                          .scores = scores,
                          .dp = slopes,
                          .stride = kChunk,
                          .p = scores,
                          .ds = slopes,
                          .p_stride = math_.p_stride(),
                          .first = first,
                          .last = last,
                          .lse = forward_.lse + head * forward_.tokens + query,
                          .delta = Delta(head, query)});
    MT_RETURN_IF_ERROR(math_.AddProduct(keys, queries, scores, false, dout, dv, workspace_));
    MT_RETURN_IF_ERROR(math_.AddProduct(keys, queries, slopes, false, q, dk, workspace_));
    return math_.AddProduct(queries, keys, slopes, true, k, DqSums(head, query), workspace_);
  }

  const AttentionBackwardArgs& args_;
  const AttentionArgs& forward_;
  const SightBounds& bounds_;
  const BlockMath& math_;
  const int64_t begin_, end_, kv_head_, group_, dim_, value_dim_, out_stride_;
  Workspace& workspace_;
};

// dsinks[head] (+)= -sum over tokens of p_sink * delta. `delta` is [heads, tokens].
void SinkGradients(const AttentionBackwardArgs& args, const float* delta, ThreadPool* pool) {
  const AttentionArgs& forward = args.forward;
  pool->ParallelFor(forward.heads, [&](int64_t head) {
    const float sink = SinkOf(forward.shaping, forward.dtype, head);
    const float* const lse = forward.lse + head * forward.tokens;
    const float* const delta_of = delta + head * forward.tokens;
    double sum = 0;
    for (int64_t t = 0; t < forward.tokens; ++t) {
      sum += double{std::exp(sink - lse[t])} * delta_of[t];
    }
    const double before = args.add_dsinks ? args.dsinks[head] : 0.0;
    args.dsinks[head] = static_cast<float>(before - sum);
  });
}

}  // namespace

absl::Status RunAttentionBackward(const AttentionBackwardArgs& args, bool native_bf16,
                                  ThreadPool* pool, WorkspacePool* workspaces) {
  if (args.forward.tokens == 0) return absl::OkStatus();
  MT_RETURN_IF_ERROR(CheckAttention(args.forward));
  const SightBounds bounds(args.forward);
  const BlockMath math(args.forward, native_bf16);
  const std::vector<int64_t> segments = Segments(args.forward);
  const int64_t count = static_cast<int64_t>(segments.size()) - 1;
  FirstError error;
  pool->ParallelFor(count * args.forward.kv_heads, [&](int64_t task) {
    const size_t segment = static_cast<size_t>(task / args.forward.kv_heads);
    const WorkspacePool::Lease workspace = workspaces->Take();
    error.Update(BackwardSegment(args, bounds, math, segments[segment], segments[segment + 1],
                                 task % args.forward.kv_heads, *workspace)
                     .Run());
  });
  MT_RETURN_IF_ERROR(error.status());
  if (args.dsinks != nullptr) {
    const AttentionArgs& f = args.forward;
    SinkGradients(args, static_cast<float*>(args.workspace) + f.heads * f.tokens * f.head_dim,
                  pool);
  }
  return absl::OkStatus();
}

int64_t AttentionWorkspaceBytes(int64_t tokens, int64_t heads, int64_t head_dim) {
  return tokens * heads * (head_dim + 1) * 4;
}

}  // namespace megatrain

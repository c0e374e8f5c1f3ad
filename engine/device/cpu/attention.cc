#include "engine/device/cpu/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/device/cpu/elementwise.h"
#include "engine/device/cpu/product.h"
#include "engine/device/cpu/softmax_block.h"

namespace megatrain {
namespace {

// A block of scores is kBlock x kChunk in FP32: 256 KiB, a part of any second-level cache. Blocks
// lie on a grid of kBlock whatever the documents are, so that few shapes of product occur: making
// the code for a new one takes longer than running it.
constexpr int64_t kBlock = 128;
constexpr int64_t kChunk = 512;
constexpr int64_t kHeadDimMax = 512;
// Backward: documents are joined to segments of at least this many tokens, each one task a head.
constexpr int64_t kSegment = 512;

enum Slot { kScores = 1, kSlopes, kSums, kRows, kWideA, kWideB, kWideC, kWideD };

int64_t RoundDown(int64_t a, int64_t b) { return a / b * b; }
int64_t RoundUp(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

absl::Status Check(const AttentionArgs& args) {
  if (args.kv_heads < 1 || args.heads % args.kv_heads != 0 || args.head_dim < 1 ||
      args.head_dim > kHeadDimMax) {
    return absl::InvalidArgumentError(absl::StrCat("attention with ", args.heads, " heads, ",
                                                   args.kv_heads, " key-value heads, head_dim ",
                                                   args.head_dim, ": not supported"));
  }
  if (args.documents < 1 || args.document_starts[0] != 0 ||
      args.document_starts[args.documents] != args.tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the documents do not cover the ", args.tokens, " tokens"));
  }
  return absl::OkStatus();
}

// [tokens]: where each token's document starts and ends.
struct DocumentBounds {
  std::vector<int32_t> start, end;

  explicit DocumentBounds(const AttentionArgs& args)
      : start(static_cast<size_t>(args.tokens)), end(static_cast<size_t>(args.tokens)) {
    for (int64_t d = 0; d < args.documents; ++d) {
      const int32_t from = args.document_starts[d], to = args.document_starts[d + 1];
      std::fill(start.begin() + from, start.begin() + to, from);
      std::fill(end.begin() + from, end.begin() + to, to);
    }
  }
};

// Rows of one head: element (row, i) is at row * stride + i.
struct HeadRows {
  const void* data = nullptr;
  int64_t stride = 0;
};

// Selects how blocks are computed: in BF16, or widened to FP32 on a processor without BF16
// products.
struct BlockMath {
  DType storage = DType::kF32;  // of q, k, v and the outputs
  DType compute = DType::kF32;  // of the products' operands
  int64_t dim = 0;

  BlockMath(const AttentionArgs& args, bool native_bf16)
      : storage(args.dtype),
        compute(args.dtype == DType::kBF16 && native_bf16 ? DType::kBF16 : DType::kF32),
        dim(args.head_dim) {}

  // Rows [row, row + rows) of a head, in `compute`; a copy in the slot if it has to be widened.
  HeadRows Operand(const void* base, int64_t stride, int64_t head, int64_t row, int64_t rows,
                   int slot, Workspace& workspace) const {
    const char* data =
        static_cast<const char*>(base) + (row * stride + head * dim) * DTypeBytes(storage);
    if (storage == compute) return {data, stride};
    float* wide = workspace.Floats(slot, rows * dim);
    WidenBlock(reinterpret_cast<const bf16_t*>(data), stride, rows, dim, wide, dim);
    return {wide, dim};
  }

  // out[m, n] = a[m, dim] * b[n, dim]^T.
  absl::Status Scores(int64_t m, int64_t n, HeadRows a, HeadRows b, float* out,
                      Workspace& workspace) const {
    const ProductShape shape{.m = m,
                             .n = n,
                             .k = dim,
                             .dtype = compute,
                             .transpose_b = true,
                             .a_stride = a.stride,
                             .b_stride = b.stride,
                             .out_stride = kChunk};
    return workspace.Multiply(shape, a.data, b.data, out);
  }

  // Probabilities lie over their FP32 scores, row by row.
  int64_t p_stride() const { return kChunk * 4 / DTypeBytes(compute); }

  // out[m, dim] += op(p) * b[k, dim]; p is [m, k], or [k, m] if transposed.
  absl::Status Add(int64_t m, int64_t k, const void* p, bool transposed, HeadRows b, float* out,
                   Workspace& workspace) const {
    const ProductShape shape{.m = m,
                             .n = dim,
                             .k = k,
                             .dtype = compute,
                             .transpose_a = transposed,
                             .accumulate = true,
                             .a_stride = p_stride(),
                             .b_stride = b.stride,
                             .out_stride = dim};
    return workspace.Multiply(shape, p, b.data, out);
  }

  void Narrow(const float* x, int64_t rows, void* base, int64_t stride, int64_t head,
              int64_t row) const {
    char* out = static_cast<char*>(base) + (row * stride + head * dim) * DTypeBytes(storage);
    if (storage == DType::kBF16) {
      NarrowBlock(x, dim, rows, dim, reinterpret_cast<bf16_t*>(out), stride);
      return;
    }
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(out + i * stride * 4, x + i * dim, static_cast<size_t>(dim) * 4);
    }
  }
};

// Queries [row, row + rows) of one head against the chunks of keys that they see.
absl::Status ForwardBlock(const AttentionArgs& args, const DocumentBounds& bounds,
                          const BlockMath& math, int64_t row, int64_t rows, int64_t head,
                          Workspace& workspace) {
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  float* scores = workspace.Floats(kScores, kBlock * kChunk);
  float* sums = workspace.Floats(kSums, rows * math.dim);
  std::memset(sums, 0, static_cast<size_t>(rows * math.dim) * 4);
  float* largest = workspace.Floats(kRows, 2 * kBlock);
  float* sum = largest + kBlock;
  std::fill_n(largest, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, rows, 0.0f);
  int32_t first[kBlock], last[kBlock];
  SoftmaxStepArgs step{.dtype = math.compute,
                       .rows = rows,
                       .scale = args.scale,
                       .scores = scores,
                       .stride = kChunk,
                       .p = scores,
                       .p_stride = math.p_stride(),
                       .first = first,
                       .last = last,
                       .largest = largest,
                       .sum = sum,
                       .accumulator = sums,
                       .dim = math.dim};
  const HeadRows q = math.Operand(args.q, args.q_stride, head, row, rows, kWideA, workspace);
  const int64_t end = row + rows;
  for (int64_t key = RoundDown(bounds.start[static_cast<size_t>(row)], kBlock); key < end;
       key += kChunk) {
    const int64_t keys = std::min(kChunk, end - key);
    for (int64_t i = 0; i < rows; ++i) {
      first[i] = static_cast<int32_t>(bounds.start[static_cast<size_t>(row + i)] - key);
      last[i] = static_cast<int32_t>(row + i + 1 - key);
    }
    const HeadRows k = math.Operand(args.k, args.k_stride, kv_head, key, keys, kWideB, workspace);
    const HeadRows v = math.Operand(args.v, args.v_stride, kv_head, key, keys, kWideC, workspace);
    MT_RETURN_IF_ERROR(math.Scores(rows, keys, q, k, scores, workspace));
    step.columns = keys;
    SoftmaxStep(step);
    MT_RETURN_IF_ERROR(math.Add(rows, keys, scores, false, v, sums, workspace));
  }
  const int64_t out_stride = args.heads * math.dim;
  SoftmaxFinish(
      step, args.dtype,
      static_cast<char*>(args.out) + (row * out_stride + head * math.dim) * DTypeBytes(args.dtype),
      out_stride, args.lse + head * args.tokens + row);
  return absl::OkStatus();
}

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
  BackwardSegment(const AttentionBackwardArgs& args, const DocumentBounds& bounds,
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
        out_stride_(args.forward.heads * args.forward.head_dim),
        workspace_(workspace) {}

  absl::Status Run() {
    const int64_t tokens = end_ - begin_;
    for (int64_t head = kv_head_ * group_; head < (kv_head_ + 1) * group_; ++head) {
      const int64_t offset = (begin_ * out_stride_ + head * math_.dim) * DTypeBytes(forward_.dtype);
      RowDots(forward_.dtype, tokens, math_.dim, static_cast<const char*>(args_.dout) + offset,
              static_cast<const char*>(forward_.out) + offset, out_stride_, Delta(head, begin_));
      std::memset(DqSums(head, begin_), 0, static_cast<size_t>(tokens * math_.dim) * 4);
    }
    for (int64_t key = begin_; key < end_; key += kBlock) {
      MT_RETURN_IF_ERROR(KeyBlock(key, std::min(kBlock, end_ - key)));
    }
    for (int64_t head = kv_head_ * group_; head < (kv_head_ + 1) * group_; ++head) {
      math_.Narrow(DqSums(head, begin_), tokens, args_.dq, args_.dq_stride, head, begin_);
    }
    return absl::OkStatus();
  }

 private:
  // FP32 [heads, tokens, dim] and [heads, tokens].
  float* DqSums(int64_t head, int64_t token) const {
    return static_cast<float*>(args_.workspace) + (head * forward_.tokens + token) * math_.dim;
  }
  float* Delta(int64_t head, int64_t token) const {
    return DqSums(forward_.heads, 0) + head * forward_.tokens + token;
  }

  absl::Status KeyBlock(int64_t key, int64_t keys) {
    float* dk = workspace_.Floats(kSums, 2 * kBlock * math_.dim);
    float* dv = dk + kBlock * math_.dim;
    std::memset(dk, 0, static_cast<size_t>(2 * kBlock * math_.dim) * 4);
    const HeadRows k =
        math_.Operand(forward_.k, forward_.k_stride, kv_head_, key, keys, kWideA, workspace_);
    const HeadRows v =
        math_.Operand(forward_.v, forward_.v_stride, kv_head_, key, keys, kWideB, workspace_);
    const int64_t last_seer = bounds_.end[static_cast<size_t>(key + keys - 1)];
    const int64_t query_end = std::min(end_, begin_ + RoundUp(last_seer - begin_, kBlock));
    for (int64_t head = kv_head_ * group_; head < (kv_head_ + 1) * group_; ++head) {
      for (int64_t query = key; query < query_end; query += kChunk) {
        MT_RETURN_IF_ERROR(
            Block(key, keys, query, std::min(kChunk, query_end - query), head, k, v, dk, dv));
      }
    }
    math_.Narrow(dk, keys, args_.dk, args_.dk_stride, kv_head_, key);
    math_.Narrow(dv, keys, args_.dv, args_.dv_stride, kv_head_, key);
    return absl::OkStatus();
  }

  absl::Status Block(int64_t key, int64_t keys, int64_t query, int64_t queries, int64_t head,
                     HeadRows k, HeadRows v, float* dk, float* dv) {
    float* scores = workspace_.Floats(kScores, kBlock * kChunk);
    float* slopes = workspace_.Floats(kSlopes, kBlock * kChunk);
    const HeadRows q =
        math_.Operand(forward_.q, forward_.q_stride, head, query, queries, kWideC, workspace_);
    const HeadRows dout =
        math_.Operand(args_.dout, out_stride_, head, query, queries, kWideD, workspace_);
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
    MT_RETURN_IF_ERROR(math_.Add(keys, queries, scores, false, dout, dv, workspace_));
    MT_RETURN_IF_ERROR(math_.Add(keys, queries, slopes, false, q, dk, workspace_));
    return math_.Add(queries, keys, slopes, true, k, DqSums(head, query), workspace_);
  }

  const AttentionBackwardArgs& args_;
  const AttentionArgs& forward_;
  const DocumentBounds& bounds_;
  const BlockMath& math_;
  const int64_t begin_, end_, kv_head_, group_, out_stride_;
  Workspace& workspace_;
};

}  // namespace

absl::Status RunAttention(const AttentionArgs& args, bool native_bf16, ThreadPool* pool,
                          WorkspacePool* workspaces) {
  if (args.tokens == 0) return absl::OkStatus();
  MT_RETURN_IF_ERROR(Check(args));
  const DocumentBounds bounds(args);
  const BlockMath math(args, native_bf16);
  const int64_t blocks = RoundUp(args.tokens, kBlock) / kBlock;
  FirstError error;
  pool->ParallelFor(blocks * args.heads, [&](int64_t task) {
    const int64_t row = task / args.heads * kBlock;
    const WorkspacePool::Lease workspace = workspaces->Take();
    error.Update(ForwardBlock(args, bounds, math, row, std::min(kBlock, args.tokens - row),
                              task % args.heads, *workspace));
  });
  return error.status();
}

absl::Status RunAttentionBackward(const AttentionBackwardArgs& args, bool native_bf16,
                                  ThreadPool* pool, WorkspacePool* workspaces) {
  if (args.forward.tokens == 0) return absl::OkStatus();
  MT_RETURN_IF_ERROR(Check(args.forward));
  const DocumentBounds bounds(args.forward);
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
  return error.status();
}

int64_t AttentionWorkspaceBytes(int64_t tokens, int64_t heads, int64_t head_dim) {
  return tokens * heads * (head_dim + 1) * 4;
}

// Scores and their slopes, two sums and four widened blocks of a head, and oneDNN's packing.
int64_t AttentionScratchBytesMax() {
  return 2 * kBlock * kChunk * 4 + 2 * kBlock * kHeadDimMax * 4 +
         (2 * kBlock + 2 * kChunk) * kHeadDimMax * 4 + (int64_t{4} << 20);
}

}  // namespace megatrain

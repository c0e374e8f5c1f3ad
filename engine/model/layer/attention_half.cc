#include "engine/model/layer/attention_half.h"

#include "engine/base/status.h"
#include "engine/device/device.h"
#include "engine/model/layer/residual_branch.h"

namespace megatrain {
namespace {

void* Normed(const BoundLayer& l, const Chunk& chunk) {
  return l.RowsIfKept(l.a.attention_normed, l.keeps_all, chunk, l.hidden);
}
bool HasNorm(const BoundLayer& l) { return l.o.attention_norm >= 0; }
// The rows that queries, keys and values are projected from.
const void* Input(const BoundLayer& l, const Chunk& chunk, const void* x) {
  return HasNorm(l) ? Normed(l, chunk) : l.Rows(x, chunk, l.hidden);
}

bool HasQkNorm(const BoundLayer& l) { return l.d.attention.qk_norm != QkNorm::kNone; }
// Where attention reads q and k: rotated in place, or (with a QkNorm) beside the raw ones.
void* Queries(const BoundLayer& l) { return HasQkNorm(l) ? l.a.qk_rotated : l.a.qkv; }
int64_t QueryKeyStride(const BoundLayer& l) {
  return HasQkNorm(l) ? l.q_width + l.kv_width : l.qkv_width;
}

// q or k of all tokens, which their norm reads and writes.
struct Heads {
  int64_t groups, width;  // the elements of a row that are normed together
  int64_t begin;          // elements before them in a row
  int64_t weight;         // offset in the tile
  float* rstd;            // [tokens, groups]
};
Heads QueryHeads(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  const bool full = a.qk_norm == QkNorm::kFull;
  return {full ? 1 : a.heads, full ? l.q_width : a.head_dim, 0, l.o.q_norm, l.a.qk_rstd};
}
Heads KeyHeads(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  const bool full = a.qk_norm == QkNorm::kFull;
  return {full ? 1 : a.kv_heads, full ? l.kv_width : a.head_dim, l.q_width, l.o.k_norm,
          l.a.qk_rstd + l.batch.tokens * QueryHeads(l).groups};
}

absl::Status Norm(const BoundLayer& l, const Chunk& chunk, const void* x) {
  if (!HasNorm(l)) return absl::OkStatus();
  return l.kernels.RmsNorm(
      l.stream, l.NormArgs(chunk, l.Rows(x, chunk, l.hidden), l.o.attention_norm, Normed(l, chunk),
                           l.a.attention_rstd + chunk.begin));
}

absl::Status HeadNorm(const BoundLayer& l, const Chunk& chunk, const Heads& h) {
  RmsNormArgs args =
      l.NormArgs(chunk, l.Offset(l.Rows(l.a.qkv, chunk, l.qkv_width), h.begin), h.weight,
                 l.Offset(l.Rows(Queries(l), chunk, QueryKeyStride(l)), h.begin),
                 h.rstd + chunk.begin * h.groups);
  args.groups = h.groups;
  args.width = h.width;
  args.x_stride = l.qkv_width;
  args.y_stride = QueryKeyStride(l);
  return l.kernels.RmsNorm(l.stream, args);
}

// Works in place on `dqkv`, the chunk's rows.
absl::Status HeadNormBackward(const BoundLayer& l, const Chunk& chunk, const Heads& h, void* dqkv,
                              const TileGradient& gradient) {
  void* const dy = l.Offset(dqkv, h.begin);
  RmsNormBackwardArgs args =
      l.NormBackwardArgs(chunk, l.Offset(l.Rows(l.a.qkv, chunk, l.qkv_width), h.begin), h.weight,
                         h.rstd + chunk.begin * h.groups, dy, dy, gradient);
  args.groups = h.groups;
  args.width = h.width;
  args.x_stride = args.dy_stride = args.dx_stride = l.qkv_width;
  args.accumulate = false;
  return l.kernels.RmsNormBackward(l.stream, args);
}

// Rotates `heads` heads, the first at `x`, in the chunk's rows, unless `rope` is -1.
absl::Status RotateHeads(const BoundLayer& l, const Chunk& chunk, void* x, int64_t stride,
                         int64_t heads, int rope, bool inverse) {
  if (rope < 0) return absl::OkStatus();
  const RopeConfig& config = l.model.ropes[static_cast<size_t>(rope)];
  const RopeTable& table = l.context.ropes[static_cast<size_t>(rope)];
  RopeArgs args;
  args.dtype = l.context.dtype;
  args.tokens = chunk.tokens;
  args.heads = heads;
  args.head_dim = l.d.attention.head_dim;
  args.rotary_dim = config.rotary_dim;
  args.interleaved = config.interleaved;
  args.x = x;
  args.stride = stride;
  args.positions = l.batch.positions + chunk.begin;
  args.cosine = table.cosine;
  args.sine = table.sine;
  args.inverse = inverse;
  return l.kernels.Rope(l.stream, args);
}

// Rotates q and k, which lie side by side in the chunk's rows of `x`.
absl::Status Rotate(const BoundLayer& l, const Chunk& chunk, void* x, int64_t stride,
                    bool inverse) {
  const AttentionDescription& a = l.d.attention;
  if (a.query_rope == a.key_rope) {
    return RotateHeads(l, chunk, x, stride, a.heads + a.kv_heads, a.key_rope, inverse);
  }
  MT_RETURN_IF_ERROR(RotateHeads(l, chunk, x, stride, a.heads, a.query_rope, inverse));
  return RotateHeads(l, chunk, l.Offset(x, l.q_width), stride, a.kv_heads, a.key_rope, inverse);
}

// Normalises q and k, if they have norms, and rotates them.
absl::Status PrepareQueriesAndKeys(const BoundLayer& l, const Chunk& chunk) {
  if (HasQkNorm(l)) {
    MT_RETURN_IF_ERROR(HeadNorm(l, chunk, QueryHeads(l)));
    MT_RETURN_IF_ERROR(HeadNorm(l, chunk, KeyHeads(l)));
  }
  return Rotate(l, chunk, l.Rows(Queries(l), chunk, QueryKeyStride(l)), QueryKeyStride(l),
                /*inverse=*/false);
}

AttentionArgs Attention(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  AttentionArgs args;
  args.dtype = l.context.dtype;
  args.choice = l.context.attention;
  args.tokens = l.batch.tokens;
  args.heads = a.heads;
  args.kv_heads = a.kv_heads;
  args.head_dim = a.head_dim;
  args.value_dim = a.head_dim;
  args.scale = static_cast<float>(a.score_scale);
  args.shaping.window = a.window;
  args.shaping.softcap = static_cast<float>(a.softcap);
  if (a.sinks) args.shaping.sinks = l.Offset(l.weights, l.o.sinks);
  args.document_bounds = l.batch.document_bounds;
  args.document_starts = l.batch.document_starts;
  args.documents = l.batch.documents;
  args.q = Queries(l);
  args.q_stride = QueryKeyStride(l);
  args.k = l.Offset(Queries(l), l.q_width);
  args.k_stride = QueryKeyStride(l);
  args.v = l.Offset(l.a.qkv, l.q_width + l.kv_width);
  args.v_stride = l.qkv_width;
  args.out = l.a.attention;
  args.lse = l.a.lse;
  return args;
}

// Stores the keys and values, and attends to them and to those before.
absl::Status AttentionWithCache(const BoundLayer& l) {
  const AttentionArgs whole = Attention(l);
  CachedAttentionArgs args;
  args.dtype = whole.dtype;
  args.tokens = whole.tokens;
  args.heads = whole.heads;
  args.kv_heads = whole.kv_heads;
  args.head_dim = whole.head_dim;
  args.value_dim = whole.value_dim;
  args.scale = whole.scale;
  args.shaping = whole.shaping;
  args.first_rows = l.batch.first_rows;
  args.positions = l.batch.positions;
  args.q = whole.q;
  args.q_stride = whole.q_stride;
  args.k = whole.k;
  args.k_stride = whole.k_stride;
  args.v = whole.v;
  args.v_stride = whole.v_stride;
  args.cache = l.context.cache.rows;
  args.out = whole.out;
  MT_RETURN_IF_ERROR(l.kernels.StoreInCache(l.stream, args));
  return l.context.cache.attend ? l.kernels.CachedAttention(l.stream, args)
                                : l.kernels.Attention(l.stream, whole);
}

}  // namespace

absl::Status AttentionForward(const BoundLayer& l, const void* x) {
  MT_RETURN_IF_ERROR(l.ForChunks([&](const Chunk& chunk) {
    MT_RETURN_IF_ERROR(Norm(l, chunk, x));
    MT_RETURN_IF_ERROR(l.Linear(chunk, Input(l, chunk, x), l.hidden, l.o.qkv, l.qkv_width,
                                l.Rows(l.a.qkv, chunk, l.qkv_width), l.o.qkv_bias));
    return PrepareQueriesAndKeys(l, chunk);
  }));
  return l.context.cache.rows != nullptr ? AttentionWithCache(l)
                                         : l.kernels.Attention(l.stream, Attention(l));
}

absl::Status AttentionOutput(const BoundLayer& l, const Chunk& chunk, const void* x, void* y) {
  return AddBranch(l, chunk, AttentionBranch(l), l.Rows(l.a.attention, chunk, l.q_width),
                   l.Rows(x, chunk, l.hidden), y);
}

absl::Status RecomputeAttention(const BoundLayer& l, const void* x) {
  if (!l.keeps_products) return AttentionForward(l, x);
  // Without a QkNorm the kept q and k are rotated already.
  if (l.keeps_all || !HasQkNorm(l)) return absl::OkStatus();
  return l.ForChunks([&](const Chunk& chunk) { return PrepareQueriesAndKeys(l, chunk); });
}

bool NeedsAttentionGradient(const BoundLayer& l, const TileGradient& gradient) {
  return gradient.input || l.Trains(l.o.attention_norm, l.hidden) ||
         l.Trains(l.o.qkv, l.qkv_width * l.hidden) || l.Trains(l.o.qkv_bias, l.qkv_width) ||
         l.Trains(l.o.q_norm, QueryHeads(l).width) || l.Trains(l.o.k_norm, KeyHeads(l).width) ||
         l.Trains(l.o.sinks, l.d.attention.heads);
}

absl::Status AttentionOutputBackward(const BoundLayer& l, const Chunk& chunk, const void* dh,
                                     const LayerBackwardScratch& scratch,
                                     const TileGradient& gradient) {
  const ResidualBranch branch = AttentionBranch(l);
  MT_ASSIGN_OR_RETURN(const void* const dproduct, BranchGradient(l, chunk, branch, dh, gradient));
  MT_RETURN_IF_ERROR(BranchWeightGradient(l, chunk, branch, l.Rows(l.a.attention, chunk, l.q_width),
                                          dproduct, gradient));
  if (!NeedsAttentionGradient(l, gradient)) return absl::OkStatus();
  return BranchInputGradient(l, chunk, branch, dproduct,
                             l.Rows(scratch.dattention, chunk, l.q_width));
}

AttentionBackwardArgs AttentionGradient(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                        const TileGradient& gradient) {
  AttentionBackwardArgs args;
  if (l.Trains(l.o.sinks, l.d.attention.heads) && gradient.data != nullptr) {
    args.dsinks = gradient.At(l.o.sinks);
    args.add_dsinks = gradient.add;
  }
  args.forward = Attention(l);
  args.dout = scratch.dattention;
  args.dq = scratch.dqkv;
  args.dk = l.Offset(scratch.dqkv, l.q_width);
  args.dv = l.Offset(scratch.dqkv, l.q_width + l.kv_width);
  args.dq_stride = args.dk_stride = args.dv_stride = l.qkv_width;
  args.workspace = scratch.workspace;
  args.workspace_bytes = scratch.workspace_bytes;
  return args;
}

absl::Status AttentionInputBackward(const BoundLayer& l, const Chunk& chunk, const void* x,
                                    const LayerBackwardScratch& scratch, void* dh,
                                    const TileGradient& gradient) {
  void* const dqkv = l.Rows(scratch.dqkv, chunk, l.qkv_width);
  MT_RETURN_IF_ERROR(Rotate(l, chunk, dqkv, l.qkv_width, /*inverse=*/true));
  if (HasQkNorm(l)) {
    MT_RETURN_IF_ERROR(HeadNormBackward(l, chunk, QueryHeads(l), dqkv, gradient));
    MT_RETURN_IF_ERROR(HeadNormBackward(l, chunk, KeyHeads(l), dqkv, gradient));
  }
  if (l.d.attention.qkv_bias) {
    MT_RETURN_IF_ERROR(l.BiasGradient(chunk, dqkv, l.qkv_width, l.o.qkv_bias, gradient));
  }
  if (!l.keeps_all && l.Trains(l.o.qkv, l.qkv_width * l.hidden)) {
    MT_RETURN_IF_ERROR(Norm(l, chunk, x));
  }
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, Input(l, chunk, x), l.hidden, dqkv, l.qkv_width,
                                            l.o.qkv, gradient));
  if (!gradient.input && !l.Trains(l.o.attention_norm, l.hidden)) return absl::OkStatus();
  void* const dh_rows = l.Rows(dh, chunk, l.hidden);
  if (!HasNorm(l)) {
    return l.LinearInputGradient(chunk, dqkv, l.qkv_width, l.o.qkv, l.hidden, dh_rows,
                                 /*scale=*/1.0, /*addend=*/dh_rows);
  }
  void* const normed = Normed(l, chunk);
  MT_RETURN_IF_ERROR(l.LinearInputGradient(chunk, dqkv, l.qkv_width, l.o.qkv, l.hidden, normed));
  return l.kernels.RmsNormBackward(
      l.stream, l.NormBackwardArgs(chunk, l.Rows(x, chunk, l.hidden), l.o.attention_norm,
                                   l.a.attention_rstd + chunk.begin, normed, dh_rows, gradient));
}

}  // namespace megatrain

#include "engine/model/attention_half.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

void* Normed(const BoundLayer& l, const Chunk& chunk) {
  return l.RowsIfKept(l.a.input_normed, l.keeps_all, chunk, l.c.hidden);
}

// Where attention reads q and k: rotated in place, or (qk_norm) beside the raw ones.
void* Queries(const BoundLayer& l) { return l.c.qk_norm ? l.a.qk_rotated : l.a.qkv; }
int64_t QueryKeyStride(const BoundLayer& l) {
  return l.c.qk_norm ? l.q_width + l.kv_width : l.qkv_width;
}

// q or k of all tokens, which the norm of heads reads and writes.
struct Heads {
  int64_t heads;
  int64_t begin;   // elements before them in a row
  int64_t weight;  // offset in the tile
  float* rstd;     // [tokens, heads]
};
Heads QueryHeads(const BoundLayer& l) { return {l.c.heads, 0, l.o.q_norm, l.a.qk_rstd}; }
Heads KeyHeads(const BoundLayer& l) {
  return {l.c.kv_heads, l.q_width, l.o.k_norm, l.a.qk_rstd + l.batch.tokens * l.c.heads};
}

absl::Status Norm(const BoundLayer& l, const Chunk& chunk, const void* x) {
  return l.kernels.RmsNorm(l.stream, l.NormArgs(chunk, l.Rows(x, chunk, l.c.hidden), l.o.input_norm,
                                                Normed(l, chunk), l.a.input_rstd + chunk.begin));
}

absl::Status HeadNorm(const BoundLayer& l, const Chunk& chunk, const Heads& h) {
  RmsNormArgs args =
      l.NormArgs(chunk, l.Offset(l.Rows(l.a.qkv, chunk, l.qkv_width), h.begin), h.weight,
                 l.Offset(l.Rows(Queries(l), chunk, QueryKeyStride(l)), h.begin),
                 h.rstd + chunk.begin * h.heads);
  args.groups = h.heads;
  args.width = l.c.head_dim;
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
                         h.rstd + chunk.begin * h.heads, dy, dy, gradient);
  args.groups = h.heads;
  args.width = l.c.head_dim;
  args.x_stride = args.dy_stride = args.dx_stride = l.qkv_width;
  args.accumulate = false;
  return l.kernels.RmsNormBackward(l.stream, args);
}

// Rotates q and k, which lie side by side in the chunk's rows of `x`.
absl::Status Rotate(const BoundLayer& l, const Chunk& chunk, void* x, int64_t stride,
                    bool inverse) {
  RopeArgs args;
  args.dtype = l.context.dtype;
  args.tokens = chunk.tokens;
  args.heads = l.c.heads + l.c.kv_heads;
  args.head_dim = args.rotary_dim = l.c.head_dim;
  args.x = x;
  args.stride = stride;
  args.positions = l.batch.positions + chunk.begin;
  args.cosine = l.context.rope_cosine;
  args.sine = l.context.rope_sine;
  args.inverse = inverse;
  return l.kernels.Rope(l.stream, args);
}

// Normalises (Qwen3) and rotates q and k.
absl::Status PrepareQueriesAndKeys(const BoundLayer& l, const Chunk& chunk) {
  if (l.c.qk_norm) {
    MT_RETURN_IF_ERROR(HeadNorm(l, chunk, QueryHeads(l)));
    MT_RETURN_IF_ERROR(HeadNorm(l, chunk, KeyHeads(l)));
  }
  return Rotate(l, chunk, l.Rows(Queries(l), chunk, QueryKeyStride(l)), QueryKeyStride(l),
                /*inverse=*/false);
}

AttentionArgs Attention(const BoundLayer& l) {
  AttentionArgs args;
  args.dtype = l.context.dtype;
  args.choice = l.context.attention;
  args.tokens = l.batch.tokens;
  args.heads = l.c.heads;
  args.kv_heads = l.c.kv_heads;
  args.head_dim = l.c.head_dim;
  args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(l.c.head_dim)));
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
  args.scale = whole.scale;
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
    MT_RETURN_IF_ERROR(l.Linear(chunk, Normed(l, chunk), l.c.hidden, l.o.qkv, l.qkv_width,
                                l.Rows(l.a.qkv, chunk, l.qkv_width), l.o.qkv_bias));
    return PrepareQueriesAndKeys(l, chunk);
  }));
  return l.context.cache.rows != nullptr ? AttentionWithCache(l)
                                         : l.kernels.Attention(l.stream, Attention(l));
}

absl::Status AttentionOutput(const BoundLayer& l, const Chunk& chunk, const void* x) {
  return l.Linear(chunk, l.Rows(l.a.attention, chunk, l.q_width), l.q_width, l.o.o, l.c.hidden,
                  l.Middle(chunk), /*bias=*/-1, l.Rows(x, chunk, l.c.hidden));
}

absl::Status RecomputeAttention(const BoundLayer& l, const void* x) {
  if (!l.keeps_products) return AttentionForward(l, x);
  // Without QK norm the kept q and k are rotated already.
  if (l.keeps_all || !l.c.qk_norm) return absl::OkStatus();
  return l.ForChunks([&](const Chunk& chunk) { return PrepareQueriesAndKeys(l, chunk); });
}

bool NeedsAttentionGradient(const BoundLayer& l, const TileGradient& gradient) {
  const int64_t hidden = l.c.hidden;
  return gradient.input || l.Trains(l.o.input_norm, hidden) ||
         l.Trains(l.o.qkv, l.qkv_width * hidden) || l.Trains(l.o.qkv_bias, l.qkv_width) ||
         l.Trains(l.o.q_norm, l.c.head_dim) || l.Trains(l.o.k_norm, l.c.head_dim);
}

absl::Status AttentionOutputBackward(const BoundLayer& l, const Chunk& chunk, const void* dh,
                                     const LayerBackwardScratch& scratch,
                                     const TileGradient& gradient) {
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, l.Rows(l.a.attention, chunk, l.q_width),
                                            l.q_width, dh, l.c.hidden, l.o.o, gradient));
  if (!NeedsAttentionGradient(l, gradient)) return absl::OkStatus();
  return l.LinearInputGradient(chunk, dh, l.c.hidden, l.o.o, l.q_width,
                               l.Rows(scratch.dattention, chunk, l.q_width));
}

AttentionBackwardArgs AttentionGradient(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  AttentionBackwardArgs args;
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
  void* const normed = Normed(l, chunk);
  MT_RETURN_IF_ERROR(Rotate(l, chunk, dqkv, l.qkv_width, /*inverse=*/true));
  if (l.c.qk_norm) {
    MT_RETURN_IF_ERROR(HeadNormBackward(l, chunk, QueryHeads(l), dqkv, gradient));
    MT_RETURN_IF_ERROR(HeadNormBackward(l, chunk, KeyHeads(l), dqkv, gradient));
  }
  if (l.c.qkv_bias) {
    MT_RETURN_IF_ERROR(l.BiasGradient(chunk, dqkv, l.qkv_width, l.o.qkv_bias, gradient));
  }
  if (!l.keeps_all && l.Trains(l.o.qkv, l.qkv_width * l.c.hidden)) {
    MT_RETURN_IF_ERROR(Norm(l, chunk, x));
  }
  MT_RETURN_IF_ERROR(
      l.LinearWeightGradient(chunk, normed, l.c.hidden, dqkv, l.qkv_width, l.o.qkv, gradient));
  if (!gradient.input && !l.Trains(l.o.input_norm, l.c.hidden)) return absl::OkStatus();
  MT_RETURN_IF_ERROR(l.LinearInputGradient(chunk, dqkv, l.qkv_width, l.o.qkv, l.c.hidden, normed));
  return l.kernels.RmsNormBackward(
      l.stream, l.NormBackwardArgs(chunk, l.Rows(x, chunk, l.c.hidden), l.o.input_norm,
                                   l.a.input_rstd + chunk.begin, normed,
                                   l.Rows(dh, chunk, l.c.hidden), gradient));
}

}  // namespace megatrain

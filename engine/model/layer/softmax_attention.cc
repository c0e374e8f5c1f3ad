#include "engine/model/layer/softmax_attention.h"

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

int64_t QWidth(const BoundLayer& l) { return l.d.attention.q_width(); }
int64_t KvWidth(const BoundLayer& l) { return l.d.attention.kv_width(); }
int64_t ProjectedWidth(const BoundLayer& l) { return l.d.attention.projected_width(); }

bool HasQkNorm(const BoundLayer& l) { return l.d.attention.qk_norm != QkNorm::kNone; }
// Where attention reads q and k: rotated in place, or (with a QkNorm) beside the raw ones.
void* Queries(const BoundLayer& l) { return HasQkNorm(l) ? l.a.softmax.qk_rotated : l.a.projected; }
int64_t QueryKeyStride(const BoundLayer& l) {
  if (l.d.attention.value_norm) return l.d.attention.qkv_width();
  return HasQkNorm(l) ? QWidth(l) + KvWidth(l) : ProjectedWidth(l);
}
// Where attention reads v: in place, or (with a value_norm) beside q and k.
void* Values(const BoundLayer& l) {
  return l.Offset(l.d.attention.value_norm ? Queries(l) : l.a.projected, QWidth(l) + KvWidth(l));
}
int64_t ValueStride(const BoundLayer& l) {
  return l.d.attention.value_norm ? QueryKeyStride(l) : ProjectedWidth(l);
}
// Where attention writes the gradient by v: to the columns of values, or (if these are the keys)
// behind the gradients by all queries and keys.
void* ValueGradient(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  const int64_t columns = QWidth(l) + KvWidth(l);
  return l.Offset(scratch.dprojected,
                  l.d.attention.values_are_keys ? l.batch.tokens * columns : columns);
}
int64_t ValueGradientStride(const BoundLayer& l) {
  return l.d.attention.values_are_keys ? KvWidth(l) : ProjectedWidth(l);
}

// q, k or v of all tokens, which their norm reads and writes.
struct Heads {
  int64_t groups, width;  // the elements of a row that are normed together
  int64_t from;           // elements before them in a projected row
  int64_t to;             // elements before them in a row that attention reads
  int64_t weight;         // offset in the tile; -1: none
  float* rstd;            // [tokens, groups]
};
Heads QueryHeads(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  const bool full = a.qk_norm == QkNorm::kFull;
  return {full ? 1 : a.heads, full ? QWidth(l) : a.head_dim, 0, 0, l.o.q_norm, l.a.softmax.qk_rstd};
}
Heads KeyHeads(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  const bool full = a.qk_norm == QkNorm::kFull;
  return {full ? 1 : a.kv_heads,
          full ? KvWidth(l) : a.head_dim,
          QWidth(l),
          QWidth(l),
          l.o.k_norm,
          l.a.softmax.qk_rstd + l.batch.tokens * QueryHeads(l).groups};
}
Heads ValueHeads(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  const int64_t keys = QWidth(l), values = QWidth(l) + KvWidth(l);
  return {a.kv_heads, a.head_dim, a.values_are_keys ? keys : values,
          values,     -1,         l.a.softmax.value_rstd};
}

absl::Status HeadNorm(const BoundLayer& l, const Chunk& chunk, const Heads& h) {
  RmsNormArgs args =
      l.NormArgs(chunk, l.Offset(l.Rows(l.a.projected, chunk, ProjectedWidth(l)), h.from), h.weight,
                 l.Offset(l.Rows(Queries(l), chunk, QueryKeyStride(l)), h.to),
                 h.rstd + chunk.begin * h.groups);
  args.groups = h.groups;
  args.width = h.width;
  args.x_stride = ProjectedWidth(l);
  args.y_stride = QueryKeyStride(l);
  return l.kernels.RmsNorm(l.stream, args);
}

// Computes the gradient by the chunk's projected rows, `dprojected`, from `dy`, that by the norm's
// result, which may be the same rows. With `add` it is added to what is there.
absl::Status HeadNormBackward(const BoundLayer& l, const Chunk& chunk, const Heads& h,
                              const void* dy, int64_t dy_stride, void* dprojected, bool add,
                              const TileGradient& gradient) {
  RmsNormBackwardArgs args = l.NormBackwardArgs(
      chunk, l.Offset(l.Rows(l.a.projected, chunk, ProjectedWidth(l)), h.from), h.weight,
      h.rstd + chunk.begin * h.groups, dy, l.Offset(dprojected, h.from), gradient);
  args.groups = h.groups;
  args.width = h.width;
  args.dy_stride = dy_stride;
  args.x_stride = args.dx_stride = ProjectedWidth(l);
  args.accumulate = add;
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
  return RotateHeads(l, chunk, l.Offset(x, QWidth(l)), stride, a.kv_heads, a.key_rope, inverse);
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
  args.scale = static_cast<float>(a.score_scale);
  args.shaping.window = a.window;
  args.shaping.softcap = static_cast<float>(a.softcap);
  if (a.sinks) args.shaping.sinks = l.Offset(l.weights, l.o.sinks);
  args.document_bounds = l.batch.document_bounds;
  args.document_starts = l.batch.document_starts;
  args.documents = l.batch.documents;
  args.q = Queries(l);
  args.q_stride = QueryKeyStride(l);
  args.k = l.Offset(Queries(l), QWidth(l));
  args.k_stride = QueryKeyStride(l);
  args.v = Values(l);
  args.v_stride = ValueStride(l);
  args.out = l.a.mixed;
  args.lse = l.a.softmax.lse;
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

// Returns the arguments of the backward kernel; those of Announce are the same.
AttentionBackwardArgs AttentionGradient(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                        const TileGradient& gradient) {
  AttentionBackwardArgs args;
  if (l.Trains(l.o.sinks, l.d.attention.heads) && gradient.data != nullptr) {
    args.dsinks = gradient.At(l.o.sinks);
    args.add_dsinks = gradient.add;
  }
  args.forward = Attention(l);
  args.dout = scratch.dmixed;
  args.dq = scratch.dprojected;
  args.dk = l.Offset(scratch.dprojected, QWidth(l));
  args.dv = ValueGradient(l, scratch);
  args.dq_stride = args.dk_stride = ProjectedWidth(l);
  args.dv_stride = ValueGradientStride(l);
  args.workspace = scratch.workspace;
  args.workspace_bytes = scratch.workspace_bytes;
  return args;
}

}  // namespace

absl::Status SoftmaxAttention::Prepare(const BoundLayer& l, const Chunk& chunk) const {
  if (HasQkNorm(l)) {
    MT_RETURN_IF_ERROR(HeadNorm(l, chunk, QueryHeads(l)));
    MT_RETURN_IF_ERROR(HeadNorm(l, chunk, KeyHeads(l)));
  }
  if (l.d.attention.value_norm) MT_RETURN_IF_ERROR(HeadNorm(l, chunk, ValueHeads(l)));
  return Rotate(l, chunk, l.Rows(Queries(l), chunk, QueryKeyStride(l)), QueryKeyStride(l),
                /*inverse=*/false);
}

bool SoftmaxAttention::Recomputes(const BoundLayer& l) const {
  // Without a QkNorm the kept q and k are rotated already.
  return !l.keeps_all && HasQkNorm(l);
}

absl::Status SoftmaxAttention::Mix(const BoundLayer& l) const {
  return l.context.cache.rows != nullptr ? AttentionWithCache(l)
                                         : l.kernels.Attention(l.stream, Attention(l));
}

bool SoftmaxAttention::Trains(const BoundLayer& l) const {
  return l.Trains(l.o.q_norm, QueryHeads(l).width) || l.Trains(l.o.k_norm, KeyHeads(l).width) ||
         l.Trains(l.o.sinks, l.d.attention.heads);
}

absl::Status SoftmaxAttention::MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                           const TileGradient& gradient) const {
  return l.kernels.AttentionBackward(l.stream, AttentionGradient(l, scratch, gradient));
}

absl::Status SoftmaxAttention::PrepareBackward(const BoundLayer& l, const Chunk& chunk,
                                               const LayerBackwardScratch& scratch,
                                               const TileGradient& gradient) const {
  const int64_t width = ProjectedWidth(l);
  void* const rows = l.Rows(scratch.dprojected, chunk, width);
  MT_RETURN_IF_ERROR(Rotate(l, chunk, rows, width, /*inverse=*/true));
  if (!HasQkNorm(l)) return absl::OkStatus();
  for (const Heads& h : {QueryHeads(l), KeyHeads(l)}) {
    MT_RETURN_IF_ERROR(HeadNormBackward(l, chunk, h, l.Offset(rows, h.from), width, rows,
                                        /*add=*/false, gradient));
  }
  if (!l.d.attention.value_norm) return absl::OkStatus();
  const int64_t stride = ValueGradientStride(l);
  return HeadNormBackward(l, chunk, ValueHeads(l), l.Rows(ValueGradient(l, scratch), chunk, stride),
                          stride, rows, /*add=*/l.d.attention.values_are_keys, gradient);
}

int64_t SoftmaxAttention::WorkspaceBytes(const LayerDescription& layer, DType dtype, int64_t tokens,
                                         int64_t sequence, const KernelSizes& sizes) const {
  const AttentionDescription& a = layer.attention;
  return sizes.AttentionBackwardWorkspaceBytes({.dtype = dtype,
                                                .tokens = tokens,
                                                .sequence = sequence,
                                                .heads = a.heads,
                                                .kv_heads = a.kv_heads,
                                                .head_dim = a.head_dim,
                                                .window = a.window,
                                                .softcap = static_cast<float>(a.softcap),
                                                .sinks = a.sinks});
}

void SoftmaxAttention::Announce(const BoundLayer& l, const LayerBackwardScratch& scratch) const {
  l.kernels.PrepareAttention(AttentionGradient(l, scratch, TileGradient()));
}

}  // namespace megatrain

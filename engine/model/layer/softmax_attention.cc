#include "engine/model/layer/softmax_attention.h"

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

int64_t QWidth(const BoundLayer& l) { return l.d.attention.q_width(); }
int64_t KvWidth(const BoundLayer& l) { return l.d.attention.kv_width(); }
bool HasGate(const BoundLayer& l) { return l.d.attention.output_gate; }
// Where keys and values begin in the rows of a.projected, behind queries and gates.
int64_t ProjectedKeys(const BoundLayer& l) { return QWidth(l) + l.d.attention.gate_width(); }
int64_t ProjectedValues(const BoundLayer& l) { return ProjectedKeys(l) + KvWidth(l); }

bool HasQkNorm(const BoundLayer& l) { return l.d.attention.qk_norm != QkNorm::kNone; }
// Where attention reads q and k: rotated in place, or (with a QkNorm) beside the raw ones.
void* Queries(const BoundLayer& l) { return HasQkNorm(l) ? l.a.softmax.qk_rotated : l.a.projected; }
int64_t QueryKeyStride(const BoundLayer& l) {
  return HasQkNorm(l) ? QWidth(l) + KvWidth(l) : l.projected_width;
}
// Where keys begin in the rows that attention reads.
int64_t Keys(const BoundLayer& l) { return HasQkNorm(l) ? QWidth(l) : ProjectedKeys(l); }

// q or k of all tokens, which their norm reads and writes.
struct Heads {
  int64_t groups, width;  // the elements of a row that are normed together
  int64_t begin;          // elements before them in a row of a.projected
  int64_t normed_begin;   // elements before them in a row that attention reads
  int64_t weight;         // offset in the tile
  float* rstd;            // [tokens, groups]
};
Heads QueryHeads(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  const bool full = a.qk_norm == QkNorm::kFull;
  return {full ? 1 : a.heads, full ? QWidth(l) : a.head_dim, 0, 0, l.o.q_norm,
          l.a.softmax.qk_rstd};
}
Heads KeyHeads(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  const bool full = a.qk_norm == QkNorm::kFull;
  return {full ? 1 : a.kv_heads,
          full ? KvWidth(l) : a.head_dim,
          ProjectedKeys(l),
          Keys(l),
          l.o.k_norm,
          l.a.softmax.qk_rstd + l.batch.tokens * QueryHeads(l).groups};
}

absl::Status HeadNorm(const BoundLayer& l, const Chunk& chunk, const Heads& h) {
  RmsNormArgs args =
      l.NormArgs(chunk, l.Offset(l.Rows(l.a.projected, chunk, l.projected_width), h.begin),
                 h.weight, l.Offset(l.Rows(Queries(l), chunk, QueryKeyStride(l)), h.normed_begin),
                 h.rstd + chunk.begin * h.groups);
  args.groups = h.groups;
  args.width = h.width;
  args.x_stride = l.projected_width;
  args.y_stride = QueryKeyStride(l);
  return l.kernels.RmsNorm(l.stream, args);
}

// Works in place on `dprojected`, the chunk's rows.
absl::Status HeadNormBackward(const BoundLayer& l, const Chunk& chunk, const Heads& h,
                              void* dprojected, const TileGradient& gradient) {
  void* const dy = l.Offset(dprojected, h.begin);
  RmsNormBackwardArgs args =
      l.NormBackwardArgs(chunk, l.Offset(l.Rows(l.a.projected, chunk, l.projected_width), h.begin),
                         h.weight, h.rstd + chunk.begin * h.groups, dy, dy, gradient);
  args.groups = h.groups;
  args.width = h.width;
  args.x_stride = args.dy_stride = args.dx_stride = l.projected_width;
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

// Rotates q and k in the chunk's rows of `x`, where k begins at `keys`.
absl::Status Rotate(const BoundLayer& l, const Chunk& chunk, void* x, int64_t stride, int64_t keys,
                    bool inverse) {
  const AttentionDescription& a = l.d.attention;
  if (a.query_rope == a.key_rope && keys == QWidth(l)) {
    return RotateHeads(l, chunk, x, stride, a.heads + a.kv_heads, a.key_rope, inverse);
  }
  MT_RETURN_IF_ERROR(RotateHeads(l, chunk, x, stride, a.heads, a.query_rope, inverse));
  return RotateHeads(l, chunk, l.Offset(x, keys), stride, a.kv_heads, a.key_rope, inverse);
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
  args.k = l.Offset(Queries(l), Keys(l));
  args.k_stride = QueryKeyStride(l);
  args.v = l.Offset(l.a.projected, ProjectedValues(l));
  args.v_stride = l.projected_width;
  args.out = HasGate(l) ? l.a.softmax.attended : l.a.mixed;
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
  args.cache = l.context.cache.data;
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
  args.dout = HasGate(l) ? l.a.mixed : scratch.dmixed;
  args.dq = scratch.dprojected;
  args.dk = l.Offset(scratch.dprojected, ProjectedKeys(l));
  args.dv = l.Offset(scratch.dprojected, ProjectedValues(l));
  args.dq_stride = args.dk_stride = args.dv_stride = l.projected_width;
  args.workspace = scratch.workspace;
  args.workspace_bytes = scratch.workspace_bytes;
  return args;
}

// Computes a.mixed from attention's result, if that has a gate.
absl::Status Gate(const BoundLayer& l) {
  if (!HasGate(l)) return absl::OkStatus();
  SigmoidGateArgs args;
  args.dtype = l.context.dtype;
  args.tokens = l.batch.tokens;
  args.heads = l.d.attention.heads;
  args.head_dim = l.d.attention.head_dim;
  args.x = l.a.softmax.attended;
  args.gate = l.Offset(l.a.projected, QWidth(l));
  args.gate_stride = l.projected_width;
  args.gate_head_stride = args.head_dim;
  args.out = l.a.mixed;
  return l.kernels.SigmoidGate(l.stream, args);
}

// Computes the gradient by attention's result in the memory of a.mixed, which nothing reads any
// more, and that by the gates in scratch.dprojected.
absl::Status GateBackward(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  if (!HasGate(l)) return absl::OkStatus();
  SigmoidGateBackwardArgs args;
  args.dtype = l.context.dtype;
  args.tokens = l.batch.tokens;
  args.heads = l.d.attention.heads;
  args.head_dim = l.d.attention.head_dim;
  args.x = l.a.softmax.attended;
  args.gate = l.Offset(l.a.projected, QWidth(l));
  args.dout = scratch.dmixed;
  args.dx = l.a.mixed;
  args.dgate = l.Offset(scratch.dprojected, QWidth(l));
  args.gate_stride = args.dgate_stride = l.projected_width;
  args.gate_head_stride = args.dgate_head_stride = args.head_dim;
  return l.kernels.SigmoidGateBackward(l.stream, args);
}

}  // namespace

absl::Status SoftmaxAttention::Prepare(const BoundLayer& l, const Chunk& chunk) const {
  if (HasQkNorm(l)) {
    MT_RETURN_IF_ERROR(HeadNorm(l, chunk, QueryHeads(l)));
    MT_RETURN_IF_ERROR(HeadNorm(l, chunk, KeyHeads(l)));
  }
  return Rotate(l, chunk, l.Rows(Queries(l), chunk, QueryKeyStride(l)), QueryKeyStride(l), Keys(l),
                /*inverse=*/false);
}

absl::Status SoftmaxAttention::Mix(const BoundLayer& l) const {
  MT_RETURN_IF_ERROR(l.context.cache.data != nullptr
                         ? AttentionWithCache(l)
                         : l.kernels.Attention(l.stream, Attention(l)));
  return Gate(l);
}

absl::Status SoftmaxAttention::Recompute(const BoundLayer& l) const {
  // Without a QkNorm the kept q and k are rotated already.
  if (HasQkNorm(l)) {
    MT_RETURN_IF_ERROR(l.ForChunks([&](const Chunk& chunk) { return Prepare(l, chunk); }));
  }
  return Gate(l);
}

bool SoftmaxAttention::Trains(const BoundLayer& l) const {
  return l.Trains(l.o.q_norm, QueryHeads(l).width) || l.Trains(l.o.k_norm, KeyHeads(l).width) ||
         l.Trains(l.o.sinks, l.d.attention.heads);
}

absl::Status SoftmaxAttention::MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                           const TileGradient& gradient) const {
  MT_RETURN_IF_ERROR(GateBackward(l, scratch));
  return l.kernels.AttentionBackward(l.stream, AttentionGradient(l, scratch, gradient));
}

absl::Status SoftmaxAttention::PrepareBackward(const BoundLayer& l, const Chunk& chunk,
                                               const LayerBackwardScratch& scratch,
                                               const TileGradient& gradient) const {
  void* const dprojected = l.Rows(scratch.dprojected, chunk, l.projected_width);
  MT_RETURN_IF_ERROR(
      Rotate(l, chunk, dprojected, l.projected_width, ProjectedKeys(l), /*inverse=*/true));
  if (!HasQkNorm(l)) return absl::OkStatus();
  MT_RETURN_IF_ERROR(HeadNormBackward(l, chunk, QueryHeads(l), dprojected, gradient));
  return HeadNormBackward(l, chunk, KeyHeads(l), dprojected, gradient);
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

int64_t SoftmaxAttention::CacheBytes(const LayerDescription& layer, DType dtype,
                                     const CacheSize& size) const {
  return size.rows * 2 * layer.attention.kv_width() * DTypeBytes(dtype);
}

void SoftmaxAttention::Announce(const BoundLayer& l, const LayerBackwardScratch& scratch) const {
  l.kernels.PrepareAttention(AttentionGradient(l, scratch, TileGradient()));
}

}  // namespace megatrain

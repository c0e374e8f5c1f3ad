#include "engine/model/layer/softmax_attention.h"

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

const AttentionDescription& Description(const BoundLayer& l) { return l.d.attention; }
bool HasQkNorm(const BoundLayer& l) { return Description(l).qk_norm != QkNorm::kNone; }
bool ProjectsKeys(const BoundLayer& l) { return Description(l).projects_keys; }

// Columns of a.projected: queries, gates, keys, values. The last three may be missing.
int64_t Gates(const AttentionDescription& a) { return a.q_width(); }
int64_t Keys(const AttentionDescription& a) { return Gates(a) + a.gate_width(); }
int64_t Values(const AttentionDescription& a) { return Keys(a) + a.kv_width(); }
// Columns of qk_rotated: queries, keys, and values if they are normed.
int64_t RotatedKeys(const AttentionDescription& a) { return a.q_width(); }
int64_t RotatedValues(const AttentionDescription& a) { return RotatedKeys(a) + a.kv_width(); }

// Heads of all tokens, side by side, in rows that are `stride` elements apart.
struct Heads {
  void* rows;
  int64_t stride;
};
Heads Projected(const BoundLayer& l, int64_t column) {
  return {l.Offset(l.a.projected, column), l.projected_width};
}
Heads Rotated(const BoundLayer& l, int64_t column) {
  return {l.Offset(l.a.softmax.qk_rotated, column), Description(l).rotated_width()};
}
void* RowsOf(const BoundLayer& l, const Chunk& chunk, const Heads& heads) {
  return l.Rows(heads.rows, chunk, heads.stride);
}

const SharedRows::KeySet& SharedKeys(const BoundLayer& l) {
  return l.batch.shared.key_sets[static_cast<size_t>(Description(l).key_set)];
}

// What attention reads: rotated in place, or (with a QkNorm) beside what was projected.
Heads QueriesOf(const BoundLayer& l) { return HasQkNorm(l) ? Rotated(l, 0) : Projected(l, 0); }
Heads KeysOf(const BoundLayer& l) {
  const AttentionDescription& a = Description(l);
  if (!a.projects_keys) return {SharedKeys(l).rows, 2 * a.kv_width()};
  return HasQkNorm(l) ? Rotated(l, RotatedKeys(a)) : Projected(l, Keys(a));
}
Heads ValuesOf(const BoundLayer& l) {
  const AttentionDescription& a = Description(l);
  if (!a.projects_keys) return {l.Offset(SharedKeys(l).rows, a.kv_width()), 2 * a.kv_width()};
  return a.value_norm ? Rotated(l, RotatedValues(a)) : Projected(l, Values(a));
}

// Where the gradients by these go: to the columns of what was projected. For those that have no
// such columns there is room behind all rows.
Heads QueryGradient(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  return {scratch.dprojected, l.projected_width};
}
void* BehindGradients(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  return l.Offset(scratch.dprojected, l.batch.tokens * l.projected_width);
}
Heads KeyGradient(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  const AttentionDescription& a = Description(l);
  if (!a.projects_keys) return {BehindGradients(l, scratch), 2 * a.kv_width()};
  return {l.Offset(scratch.dprojected, Keys(a)), l.projected_width};
}
Heads ValueGradient(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  const AttentionDescription& a = Description(l);
  if (!a.projects_keys) {
    return {l.Offset(BehindGradients(l, scratch), a.kv_width()), 2 * a.kv_width()};
  }
  if (a.values_are_keys) return {BehindGradients(l, scratch), a.kv_width()};
  return {l.Offset(scratch.dprojected, Values(a)), l.projected_width};
}

// A norm of heads.
struct HeadNorm {
  int64_t groups, width;  // the elements of a row that are normed together
  int64_t projected;      // the column of a.projected that it reads
  Heads out;
  int64_t weight;  // offset in the tile; -1: none
  float* rstd;     // [tokens, groups]
};
HeadNorm QueryNorm(const BoundLayer& l) {
  const AttentionDescription& a = Description(l);
  const bool full = a.qk_norm == QkNorm::kFull;
  return {.groups = full ? 1 : a.heads,
          .width = full ? a.q_width() : a.head_dim,
          .projected = 0,
          .out = QueriesOf(l),
          .weight = l.o.q_norm,
          .rstd = l.a.softmax.qk_rstd};
}
HeadNorm KeyNorm(const BoundLayer& l) {
  const AttentionDescription& a = Description(l);
  const bool full = a.qk_norm == QkNorm::kFull;
  return {.groups = full ? 1 : a.kv_heads,
          .width = full ? a.kv_width() : a.head_dim,
          .projected = Keys(a),
          .out = KeysOf(l),
          .weight = l.o.k_norm,
          .rstd = l.a.softmax.qk_rstd + l.batch.tokens * QueryNorm(l).groups};
}
HeadNorm ValueNorm(const BoundLayer& l) {
  const AttentionDescription& a = Description(l);
  return {.groups = a.kv_heads,
          .width = a.head_dim,
          .projected = a.values_are_keys ? Keys(a) : Values(a),
          .out = ValuesOf(l),
          .weight = -1,
          .rstd = l.a.softmax.value_rstd};
}

absl::Status Norm(const BoundLayer& l, const Chunk& chunk, const HeadNorm& norm) {
  const Heads x = Projected(l, norm.projected);
  RmsNormArgs args = l.NormArgs(chunk, RowsOf(l, chunk, x), norm.weight, RowsOf(l, chunk, norm.out),
                                norm.rstd + chunk.begin * norm.groups);
  args.groups = norm.groups;
  args.width = norm.width;
  args.x_stride = x.stride;
  args.y_stride = norm.out.stride;
  return l.kernels.RmsNorm(l.stream, args);
}

// Computes the gradient by the chunk's rows of what was projected from `dy`, which may be in the
// same place. With `add` it is added to what is there.
absl::Status NormBackward(const BoundLayer& l, const Chunk& chunk, const HeadNorm& norm,
                          const Heads& dy, const LayerBackwardScratch& scratch, bool add,
                          const TileGradient& gradient) {
  const Heads x = Projected(l, norm.projected);
  const Heads dx = {l.Offset(scratch.dprojected, norm.projected), l.projected_width};
  RmsNormBackwardArgs args = l.NormBackwardArgs(
      chunk, RowsOf(l, chunk, x), norm.weight, norm.rstd + chunk.begin * norm.groups,
      RowsOf(l, chunk, dy), RowsOf(l, chunk, dx), gradient);
  args.groups = norm.groups;
  args.width = norm.width;
  args.x_stride = x.stride;
  args.dy_stride = dy.stride;
  args.dx_stride = dx.stride;
  args.accumulate = add;
  return l.kernels.RmsNormBackward(l.stream, args);
}

// Rotates the chunk's queries and keys, or gradients by them.
absl::Status Rotate(const BoundLayer& l, const Chunk& chunk, const Heads& queries,
                    const Heads& keys, bool inverse) {
  const AttentionDescription& a = Description(l);
  void* const q = RowsOf(l, chunk, queries);
  void* const k = RowsOf(l, chunk, keys);
  const bool together = a.query_rope == a.key_rope && k == l.Offset(q, a.q_width());
  if (a.projects_keys && together) {
    return l.RotateHeads(chunk, q, queries.stride, a.heads + a.kv_heads, a.key_rope, inverse);
  }
  MT_RETURN_IF_ERROR(l.RotateHeads(chunk, q, queries.stride, a.heads, a.query_rope, inverse));
  if (!a.projects_keys) return absl::OkStatus();
  return l.RotateHeads(chunk, k, keys.stride, a.kv_heads, a.key_rope, inverse);
}

// Copies keys and values for the layers that use them, unless those find them in the cache.
absl::Status ShareKeys(const BoundLayer& l) {
  if (!ProjectsKeys(l) || Description(l).key_set < 0 || l.context.cache.attend) {
    return absl::OkStatus();
  }
  const int64_t width = Description(l).kv_width();
  void* shared = SharedKeys(l).rows;
  for (const Heads& heads : {KeysOf(l), ValuesOf(l)}) {
    AddArgs copy;
    copy.rows = l.batch.tokens;
    copy.width = width;
    copy.a = {l.context.dtype, heads.rows, heads.stride};
    copy.y_dtype = l.context.dtype;
    copy.y = shared;
    copy.y_stride = 2 * width;
    MT_RETURN_IF_ERROR(l.kernels.Add(l.stream, copy));
    shared = l.Offset(shared, width);
  }
  return absl::OkStatus();
}

// Adds the gradients by shared keys and values to their sums or, in the layer that makes them, the
// sums to these.
absl::Status AddSharedGradients(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  const int64_t width = Description(l).kv_width();
  const bool first = LastUserOfKeys(l.model, Description(l).key_set) == l.context.layer;
  float* sum = SharedKeys(l).gradient;
  for (const Heads& heads : {KeyGradient(l, scratch), ValueGradient(l, scratch)}) {
    AddArgs args;
    args.rows = l.batch.tokens;
    args.width = width;
    args.a = {l.context.dtype, heads.rows, heads.stride};
    if (ProjectsKeys(l)) {
      args.b = {DType::kF32, sum, 2 * width};
      args.y_dtype = l.context.dtype;
      args.y = heads.rows;
      args.y_stride = heads.stride;
    } else {
      if (!first) args.b = {DType::kF32, sum, 2 * width};
      args.y_dtype = DType::kF32;
      args.y = sum;
      args.y_stride = 2 * width;
    }
    MT_RETURN_IF_ERROR(l.kernels.Add(l.stream, args));
    sum += width;
  }
  return absl::OkStatus();
}

AttentionArgs Attention(const BoundLayer& l) {
  const Heads q = QueriesOf(l), k = KeysOf(l), v = ValuesOf(l);
  AttentionArgs args = l.AttentionCall();
  args.q = q.rows;
  args.q_stride = q.stride;
  args.k = k.rows;
  args.k_stride = k.stride;
  args.v = v.rows;
  args.v_stride = v.stride;
  args.out = Description(l).output_gate ? l.a.softmax.attended : l.a.mixed;
  args.lse = l.a.softmax.lse;
  return args;
}

// Returns the arguments of the backward kernel; those of Announce are the same.
AttentionBackwardArgs AttentionGradient(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                        const TileGradient& gradient) {
  const Heads dq = QueryGradient(l, scratch), dk = KeyGradient(l, scratch);
  const Heads dv = ValueGradient(l, scratch);
  AttentionBackwardArgs args;
  if (l.Trains(l.o.sinks, Description(l).heads) && gradient.data != nullptr) {
    args.dsinks = gradient.At(l.o.sinks);
    args.add_dsinks = gradient.add;
  }
  args.forward = Attention(l);
  args.dout = Description(l).output_gate ? l.a.mixed : scratch.dmixed;
  args.dq = dq.rows;
  args.dq_stride = dq.stride;
  args.dk = dk.rows;
  args.dk_stride = dk.stride;
  args.dv = dv.rows;
  args.dv_stride = dv.stride;
  args.workspace = scratch.workspace;
  args.workspace_bytes = scratch.workspace_bytes;
  return args;
}

SigmoidGateArgs GateArgs(const BoundLayer& l) {
  const AttentionDescription& a = Description(l);
  SigmoidGateArgs args;
  args.dtype = l.context.dtype;
  args.tokens = l.batch.tokens;
  args.heads = a.heads;
  args.head_dim = a.head_dim;
  args.x = l.a.softmax.attended;
  args.gate = l.Offset(l.a.projected, Gates(a));
  args.gate_stride = l.projected_width;
  args.gate_head_stride = a.head_dim;
  args.out = l.a.mixed;
  return args;
}

// Computes a.mixed from attention's result, if that has a gate.
absl::Status Gate(const BoundLayer& l) {
  if (!Description(l).output_gate) return absl::OkStatus();
  return l.kernels.SigmoidGate(l.stream, GateArgs(l));
}

// Computes the gradient by attention's result in the memory of a.mixed, which nothing reads any
// more, and that by the gates in scratch.dprojected.
absl::Status GateBackward(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  const AttentionDescription& a = Description(l);
  if (!a.output_gate) return absl::OkStatus();
  SigmoidGateBackwardArgs args;
  args.forward = GateArgs(l);
  args.dout = scratch.dmixed;
  args.dx = l.a.mixed;
  args.dgate = l.Offset(scratch.dprojected, Gates(a));
  args.dgate_stride = l.projected_width;
  args.dgate_head_stride = a.head_dim;
  return l.kernels.SigmoidGateBackward(l.stream, args);
}

}  // namespace

absl::Status SoftmaxAttention::Prepare(const BoundLayer& l, const Chunk& chunk) const {
  if (HasQkNorm(l)) {
    MT_RETURN_IF_ERROR(Norm(l, chunk, QueryNorm(l)));
    if (ProjectsKeys(l)) MT_RETURN_IF_ERROR(Norm(l, chunk, KeyNorm(l)));
  }
  if (ProjectsKeys(l) && Description(l).value_norm) {
    MT_RETURN_IF_ERROR(Norm(l, chunk, ValueNorm(l)));
  }
  return Rotate(l, chunk, QueriesOf(l), KeysOf(l), /*inverse=*/false);
}

absl::Status SoftmaxAttention::Mix(const BoundLayer& l) const {
  MT_RETURN_IF_ERROR(ShareKeys(l));
  MT_RETURN_IF_ERROR(l.Attend(Attention(l)));
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
  return l.Trains(l.o.q_norm, QueryNorm(l).width) || l.Trains(l.o.k_norm, KeyNorm(l).width) ||
         l.Trains(l.o.sinks, Description(l).heads);
}

absl::Status SoftmaxAttention::MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                           const TileGradient& gradient) const {
  MT_RETURN_IF_ERROR(GateBackward(l, scratch));
  MT_RETURN_IF_ERROR(
      l.kernels.AttentionBackward(l.stream, AttentionGradient(l, scratch, gradient)));
  return Description(l).key_set < 0 ? absl::OkStatus() : AddSharedGradients(l, scratch);
}

absl::Status SoftmaxAttention::PrepareBackward(const BoundLayer& l, const Chunk& chunk,
                                               const LayerBackwardScratch& scratch,
                                               const TileGradient& gradient) const {
  const AttentionDescription& a = Description(l);
  const Heads dq = QueryGradient(l, scratch), dk = KeyGradient(l, scratch);
  MT_RETURN_IF_ERROR(Rotate(l, chunk, dq, dk, /*inverse=*/true));
  if (!HasQkNorm(l)) return absl::OkStatus();
  MT_RETURN_IF_ERROR(NormBackward(l, chunk, QueryNorm(l), dq, scratch, /*add=*/false, gradient));
  if (!a.projects_keys) return absl::OkStatus();
  MT_RETURN_IF_ERROR(NormBackward(l, chunk, KeyNorm(l), dk, scratch, /*add=*/false, gradient));
  if (!a.value_norm) return absl::OkStatus();
  return NormBackward(l, chunk, ValueNorm(l), ValueGradient(l, scratch), scratch,
                      /*add=*/a.values_are_keys, gradient);
}

void SoftmaxAttention::Announce(const BoundLayer& l, const LayerBackwardScratch& scratch) const {
  l.kernels.PrepareAttention(AttentionGradient(l, scratch, TileGradient()));
}

}  // namespace megatrain

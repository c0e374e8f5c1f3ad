#include "engine/model/layer/softmax_attention.h"

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

int64_t QWidth(const BoundLayer& l) { return l.d.attention.q_width(); }
int64_t KvWidth(const BoundLayer& l) { return l.d.attention.kv_width(); }
bool ProjectsKeys(const BoundLayer& l) { return l.d.attention.projects_keys; }
int64_t QkvWidth(const BoundLayer& l) { return l.d.attention.qkv_width(); }

bool HasQkNorm(const BoundLayer& l) { return l.d.attention.qk_norm != QkNorm::kNone; }
// Where attention reads q and k: rotated in place, or (with a QkNorm) beside the raw ones.
void* Queries(const BoundLayer& l) { return HasQkNorm(l) ? l.a.softmax.qk_rotated : l.a.projected; }
int64_t QueryKeyStride(const BoundLayer& l) {
  if (!HasQkNorm(l)) return QkvWidth(l);
  return QWidth(l) + (ProjectsKeys(l) ? KvWidth(l) : 0);
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
  return {full ? 1 : a.heads, full ? QWidth(l) : a.head_dim, 0, l.o.q_norm, l.a.softmax.qk_rstd};
}
Heads KeyHeads(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  const bool full = a.qk_norm == QkNorm::kFull;
  return {full ? 1 : a.kv_heads, full ? KvWidth(l) : a.head_dim, QWidth(l), l.o.k_norm,
          l.a.softmax.qk_rstd + l.batch.tokens * QueryHeads(l).groups};
}

absl::Status HeadNorm(const BoundLayer& l, const Chunk& chunk, const Heads& h) {
  RmsNormArgs args =
      l.NormArgs(chunk, l.Offset(l.Rows(l.a.projected, chunk, QkvWidth(l)), h.begin), h.weight,
                 l.Offset(l.Rows(Queries(l), chunk, QueryKeyStride(l)), h.begin),
                 h.rstd + chunk.begin * h.groups);
  args.groups = h.groups;
  args.width = h.width;
  args.x_stride = QkvWidth(l);
  args.y_stride = QueryKeyStride(l);
  return l.kernels.RmsNorm(l.stream, args);
}

// Works in place on `dqkv`, the chunk's rows.
absl::Status HeadNormBackward(const BoundLayer& l, const Chunk& chunk, const Heads& h, void* dqkv,
                              const TileGradient& gradient) {
  void* const dy = l.Offset(dqkv, h.begin);
  RmsNormBackwardArgs args =
      l.NormBackwardArgs(chunk, l.Offset(l.Rows(l.a.projected, chunk, QkvWidth(l)), h.begin),
                         h.weight, h.rstd + chunk.begin * h.groups, dy, dy, gradient);
  args.groups = h.groups;
  args.width = h.width;
  args.x_stride = args.dy_stride = args.dx_stride = QkvWidth(l);
  args.accumulate = false;
  return l.kernels.RmsNormBackward(l.stream, args);
}

// Rotates q and k, which lie side by side in the chunk's rows of `x`.
absl::Status Rotate(const BoundLayer& l, const Chunk& chunk, void* x, int64_t stride,
                    bool inverse) {
  const AttentionDescription& a = l.d.attention;
  if (!a.projects_keys) return l.RotateHeads(chunk, x, stride, a.heads, a.query_rope, inverse);
  if (a.query_rope == a.key_rope) {
    return l.RotateHeads(chunk, x, stride, a.heads + a.kv_heads, a.key_rope, inverse);
  }
  MT_RETURN_IF_ERROR(l.RotateHeads(chunk, x, stride, a.heads, a.query_rope, inverse));
  return l.RotateHeads(chunk, l.Offset(x, QWidth(l)), stride, a.kv_heads, a.key_rope, inverse);
}

const SharedRows::KeySet& SharedKeys(const BoundLayer& l) {
  return l.batch.shared.key_sets[static_cast<size_t>(l.d.attention.key_set)];
}
bool MakesSharedKeys(const BoundLayer& l) { return ProjectsKeys(l) && l.d.attention.key_set >= 0; }

// Copies the chunk's keys and values for the layers that use them.
absl::Status ShareKeys(const BoundLayer& l, const Chunk& chunk) {
  const int64_t width = KvWidth(l);
  void* const shared = l.Rows(SharedKeys(l).rows, chunk, 2 * width);
  AddArgs copy;
  copy.rows = chunk.tokens;
  copy.width = width;
  copy.y_dtype = l.context.dtype;
  copy.y_stride = 2 * width;
  copy.a = {l.context.dtype, l.Offset(l.Rows(Queries(l), chunk, QueryKeyStride(l)), QWidth(l)),
            QueryKeyStride(l)};
  copy.y = shared;
  MT_RETURN_IF_ERROR(l.kernels.Add(l.stream, copy));
  copy.a = {l.context.dtype, l.Offset(l.Rows(l.a.projected, chunk, QkvWidth(l)), QWidth(l) + width),
            QkvWidth(l)};
  copy.y = l.Offset(shared, width);
  return l.kernels.Add(l.stream, copy);
}

AttentionArgs Attention(const BoundLayer& l) {
  AttentionArgs args = l.AttentionCall();
  args.q = Queries(l);
  args.q_stride = QueryKeyStride(l);
  if (ProjectsKeys(l)) {
    args.k = l.Offset(Queries(l), QWidth(l));
    args.k_stride = QueryKeyStride(l);
    args.v = l.Offset(l.a.projected, QWidth(l) + KvWidth(l));
    args.v_stride = QkvWidth(l);
  } else {
    args.k = SharedKeys(l).rows;
    args.v = l.Offset(args.k, KvWidth(l));
    args.k_stride = args.v_stride = 2 * KvWidth(l);
  }
  args.out = l.a.mixed;
  args.lse = l.a.softmax.lse;
  return args;
}

// The gradients by keys and, beside them, by values.
struct KeyGradients {
  void* rows;
  int64_t stride;
};
KeyGradients KeyGradientsIn(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  if (ProjectsKeys(l)) return {l.Offset(scratch.dprojected, QWidth(l)), QkvWidth(l)};
  return {l.Offset(scratch.dprojected, l.batch.tokens * QWidth(l)), 2 * KvWidth(l)};
}

// Adds the gradients by shared keys and values to their sum or, in the layer that makes them, the
// sum to these.
absl::Status AddSharedGradients(const BoundLayer& l, const KeyGradients& keys) {
  const int64_t width = 2 * KvWidth(l);
  const Matrix sum = {DType::kF32, SharedKeys(l).gradient, width};
  const Matrix own = {l.context.dtype, keys.rows, keys.stride};
  AddArgs args;
  args.rows = l.batch.tokens;
  args.width = width;
  args.a = own;
  if (ProjectsKeys(l)) {
    args.b = sum;
    args.y_dtype = own.dtype;
    args.y = keys.rows;
    args.y_stride = keys.stride;
  } else {
    const bool first = LastUserOfKeys(l.model, l.d.attention.key_set) == l.context.layer;
    if (!first) args.b = sum;
    args.y_dtype = DType::kF32;
    args.y = SharedKeys(l).gradient;
    args.y_stride = width;
  }
  return l.kernels.Add(l.stream, args);
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
  args.dq_stride = QkvWidth(l);
  const KeyGradients keys = KeyGradientsIn(l, scratch);
  args.dk = keys.rows;
  args.dv = l.Offset(keys.rows, KvWidth(l));
  args.dk_stride = args.dv_stride = keys.stride;
  args.workspace = scratch.workspace;
  args.workspace_bytes = scratch.workspace_bytes;
  return args;
}

}  // namespace

absl::Status SoftmaxAttention::Prepare(const BoundLayer& l, const Chunk& chunk) const {
  if (HasQkNorm(l)) {
    MT_RETURN_IF_ERROR(HeadNorm(l, chunk, QueryHeads(l)));
    if (ProjectsKeys(l)) MT_RETURN_IF_ERROR(HeadNorm(l, chunk, KeyHeads(l)));
  }
  MT_RETURN_IF_ERROR(Rotate(l, chunk, l.Rows(Queries(l), chunk, QueryKeyStride(l)),
                            QueryKeyStride(l), /*inverse=*/false));
  return MakesSharedKeys(l) ? ShareKeys(l, chunk) : absl::OkStatus();
}

bool SoftmaxAttention::Recomputes(const BoundLayer& l) const {
  // Without a QkNorm the kept q and k are rotated already.
  return !l.keeps_all && HasQkNorm(l);
}

absl::Status SoftmaxAttention::Mix(const BoundLayer& l) const { return l.Attend(Attention(l)); }

bool SoftmaxAttention::Trains(const BoundLayer& l) const {
  return l.Trains(l.o.q_norm, QueryHeads(l).width) || l.Trains(l.o.k_norm, KeyHeads(l).width) ||
         l.Trains(l.o.sinks, l.d.attention.heads);
}

absl::Status SoftmaxAttention::MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                           const TileGradient& gradient) const {
  MT_RETURN_IF_ERROR(
      l.kernels.AttentionBackward(l.stream, AttentionGradient(l, scratch, gradient)));
  if (l.d.attention.key_set < 0) return absl::OkStatus();
  return AddSharedGradients(l, KeyGradientsIn(l, scratch));
}

absl::Status SoftmaxAttention::PrepareBackward(const BoundLayer& l, const Chunk& chunk,
                                               const LayerBackwardScratch& scratch,
                                               const TileGradient& gradient) const {
  void* const dqkv = l.Rows(scratch.dprojected, chunk, QkvWidth(l));
  MT_RETURN_IF_ERROR(Rotate(l, chunk, dqkv, QkvWidth(l), /*inverse=*/true));
  if (!HasQkNorm(l)) return absl::OkStatus();
  MT_RETURN_IF_ERROR(HeadNormBackward(l, chunk, QueryHeads(l), dqkv, gradient));
  return ProjectsKeys(l) ? HeadNormBackward(l, chunk, KeyHeads(l), dqkv, gradient)
                         : absl::OkStatus();
}

void SoftmaxAttention::Announce(const BoundLayer& l, const LayerBackwardScratch& scratch) const {
  l.kernels.PrepareAttention(AttentionGradient(l, scratch, TileGradient()));
}

}  // namespace megatrain

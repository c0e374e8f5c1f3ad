#include "engine/model/layer/latent_attention.h"

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

const AttentionDescription& Of(const BoundLayer& l) { return l.d.attention; }
int64_t ValueWidth(const BoundLayer& l) { return Of(l).kv_heads * Of(l).value_dim(); }
bool HasQueryLatent(const BoundLayer& l) { return Of(l).latent.query_rank > 0; }

// Where the parts of a row of a.projected begin.
int64_t KeyValueBegin(const BoundLayer& l) {
  return HasQueryLatent(l) ? Of(l).latent.query_rank : Of(l).q_width();
}
int64_t KeyEndBegin(const BoundLayer& l) { return KeyValueBegin(l) + Of(l).latent.key_value_rank; }
// The elements of a query or key that are not rotated, which are the first.
int64_t PlainDim(const BoundLayer& l) { return Of(l).head_dim - Of(l).latent.rotary_dim; }
// The elements of a head of a.latent.expanded: of its key, then its value.
int64_t ExpandedDim(const BoundLayer& l) { return PlainDim(l) + Of(l).value_dim(); }

// A latent of all tokens, with its norm and its expansion to heads. Tensors are offsets in the
// tile.
struct Latent {
  int64_t rank;
  int64_t begin;   // elements before it in a row of a.projected
  int64_t norm;    // [rank]
  int64_t weight;  // [expanded, rank]
  int64_t expanded;
  float* rstd;   // [tokens]
  void* normed;  // T [tokens, rank]
};
Latent QueryLatent(const BoundLayer& l) {
  return {Of(l).latent.query_rank, 0, l.o.q_a_norm, l.o.q_b, Of(l).q_width(), l.a.latent.query_rstd,
          l.a.latent.query_normed};
}
Latent KeyValueLatent(const BoundLayer& l) {
  return {Of(l).latent.key_value_rank,
          KeyValueBegin(l),
          l.o.kv_a_norm,
          l.o.kv_b,
          Of(l).expanded_width(),
          l.a.latent.key_value_rstd,
          l.a.latent.key_value_normed};
}

absl::Status Expand(const BoundLayer& l, const Chunk& chunk, const Latent& latent, void* expanded) {
  void* const normed = l.Rows(latent.normed, chunk, latent.rank);
  RmsNormArgs norm =
      l.NormArgs(chunk, l.Offset(l.Rows(l.a.projected, chunk, l.projected_width), latent.begin),
                 latent.norm, normed, latent.rstd + chunk.begin);
  norm.width = norm.y_stride = latent.rank;
  norm.x_stride = l.projected_width;
  norm.epsilon = static_cast<float>(Of(l).latent.norm_epsilon);
  MT_RETURN_IF_ERROR(l.kernels.RmsNorm(l.stream, norm));
  return l.Linear(chunk, normed, latent.rank, latent.weight, latent.expanded, expanded);
}

// Computes the latent's part of the chunk's rows of scratch.dprojected from the gradient by what it
// was expanded to, [tokens, latent.expanded]. Overwrites the latent's norm.
absl::Status ExpandBackward(const BoundLayer& l, const Chunk& chunk, const Latent& latent,
                            const void* dexpanded, void* dprojected, const TileGradient& gradient) {
  void* const normed = l.Rows(latent.normed, chunk, latent.rank);
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, normed, latent.rank, dexpanded, latent.expanded,
                                            latent.weight, gradient));
  MT_RETURN_IF_ERROR(
      l.LinearInputGradient(chunk, dexpanded, latent.expanded, latent.weight, latent.rank, normed));
  RmsNormBackwardArgs norm = l.NormBackwardArgs(
      chunk, l.Offset(l.Rows(l.a.projected, chunk, l.projected_width), latent.begin), latent.norm,
      latent.rstd + chunk.begin, normed, l.Offset(dprojected, latent.begin), gradient);
  norm.width = norm.dy_stride = latent.rank;
  norm.x_stride = norm.dx_stride = l.projected_width;
  norm.accumulate = false;
  return l.kernels.RmsNormBackward(l.stream, norm);
}

// Copies `width` elements of each head between rows of `from_stride` and `to_stride` elements.
absl::Status Copy(const BoundLayer& l, const Chunk& chunk, int64_t width, const void* from,
                  int64_t from_stride, int64_t from_head, void* to, int64_t to_stride,
                  int64_t to_head) {
  return l.kernels.CopyHeads(l.stream, {.dtype = l.context.dtype,
                                        .tokens = chunk.tokens,
                                        .heads = Of(l).heads,
                                        .width = width,
                                        .from = from,
                                        .from_stride = from_stride,
                                        .from_head_stride = from_head,
                                        .to = to,
                                        .to_stride = to_stride,
                                        .to_head_stride = to_head});
}

// Rotates the ends of queries or keys, whose rows of the chunk begin at `x`.
absl::Status RotateEnds(const BoundLayer& l, const Chunk& chunk, void* x, int64_t stride, int rope,
                        bool inverse) {
  return l.RotateHeads(chunk, l.Offset(x, PlainDim(l)), stride, Of(l).heads, rope, inverse);
}

AttentionArgs Attention(const BoundLayer& l) {
  AttentionArgs args = l.AttentionCall();
  args.q = l.a.latent.queries;
  args.q_stride = Of(l).q_width();
  args.k = l.a.latent.keys;
  args.k_stride = Of(l).kv_width();
  args.v = l.a.latent.values;
  args.v_stride = ValueWidth(l);
  args.out = l.a.mixed;
  args.lse = l.a.latent.lse;
  return args;
}

// The parts of scratch.dexpanded: gradients by queries, keys and values of all tokens.
struct HeadGradients {
  void *queries, *keys, *values;
};
HeadGradients GradientsOf(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  void* const keys = l.Offset(scratch.dexpanded, l.batch.tokens * Of(l).q_width());
  return {scratch.dexpanded, keys, l.Offset(keys, l.batch.tokens * Of(l).kv_width())};
}

AttentionBackwardArgs AttentionGradient(const BoundLayer& l, const LayerBackwardScratch& scratch) {
  const HeadGradients d = GradientsOf(l, scratch);
  AttentionBackwardArgs args;
  args.forward = Attention(l);
  args.dout = scratch.dmixed;
  args.dq = d.queries;
  args.dq_stride = args.forward.q_stride;
  args.dk = d.keys;
  args.dk_stride = args.forward.k_stride;
  args.dv = d.values;
  args.dv_stride = args.forward.v_stride;
  args.workspace = scratch.workspace;
  args.workspace_bytes = scratch.workspace_bytes;
  return args;
}

}  // namespace

absl::Status LatentAttention::Prepare(const BoundLayer& l, const Chunk& chunk) const {
  const int64_t q_width = Of(l).q_width(), k_width = Of(l).kv_width(), head = Of(l).head_dim;
  const void* const projected = l.Rows(l.a.projected, chunk, l.projected_width);
  void* const queries = l.Rows(l.a.latent.queries, chunk, q_width);
  void* const keys = l.Rows(l.a.latent.keys, chunk, k_width);
  void* const values = l.Rows(l.a.latent.values, chunk, ValueWidth(l));
  void* const expanded = l.a.latent.expanded;
  if (HasQueryLatent(l)) {
    MT_RETURN_IF_ERROR(Expand(l, chunk, QueryLatent(l), queries));
  } else {
    MT_RETURN_IF_ERROR(
        Copy(l, chunk, head, projected, l.projected_width, head, queries, q_width, head));
  }
  MT_RETURN_IF_ERROR(Expand(l, chunk, KeyValueLatent(l), expanded));
  const int64_t row = Of(l).expanded_width();
  MT_RETURN_IF_ERROR(
      Copy(l, chunk, PlainDim(l), expanded, row, ExpandedDim(l), keys, k_width, head));
  MT_RETURN_IF_ERROR(Copy(l, chunk, Of(l).latent.rotary_dim, l.Offset(projected, KeyEndBegin(l)),
                          l.projected_width, /*from_head=*/0, l.Offset(keys, PlainDim(l)), k_width,
                          head));
  MT_RETURN_IF_ERROR(Copy(l, chunk, Of(l).value_dim(), l.Offset(expanded, PlainDim(l)), row,
                          ExpandedDim(l), values, ValueWidth(l), Of(l).value_dim()));
  MT_RETURN_IF_ERROR(RotateEnds(l, chunk, queries, q_width, Of(l).query_rope, /*inverse=*/false));
  return RotateEnds(l, chunk, keys, k_width, Of(l).key_rope, /*inverse=*/false);
}

absl::Status LatentAttention::Mix(const BoundLayer& l) const { return l.Attend(Attention(l)); }

absl::Status LatentAttention::Recompute(const BoundLayer& l) const {
  return l.ForChunks([&](const Chunk& chunk) { return Prepare(l, chunk); });
}

bool LatentAttention::Trains(const BoundLayer& l) const {
  const LatentDescription& latent = Of(l).latent;
  return l.Trains(l.o.q_a_norm, latent.query_rank) ||
         l.Trains(l.o.q_b, Of(l).q_width() * latent.query_rank) ||
         l.Trains(l.o.kv_a_norm, latent.key_value_rank) ||
         l.Trains(l.o.kv_b, Of(l).expanded_width() * latent.key_value_rank);
}

absl::Status LatentAttention::MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                          const TileGradient&) const {
  return l.kernels.AttentionBackward(l.stream, AttentionGradient(l, scratch));
}

absl::Status LatentAttention::PrepareBackward(const BoundLayer& l, const Chunk& chunk,
                                              const LayerBackwardScratch& scratch,
                                              const TileGradient& gradient) const {
  const int64_t q_width = Of(l).q_width(), k_width = Of(l).kv_width(), head = Of(l).head_dim;
  const HeadGradients d = GradientsOf(l, scratch);
  void* const dqueries = l.Rows(d.queries, chunk, q_width);
  void* const dkeys = l.Rows(d.keys, chunk, k_width);
  const void* const dvalues = l.Rows(d.values, chunk, ValueWidth(l));
  void* const dprojected = l.Rows(scratch.dprojected, chunk, l.projected_width);
  void* const dexpanded = l.a.latent.expanded;  // no longer read
  MT_RETURN_IF_ERROR(RotateEnds(l, chunk, dqueries, q_width, Of(l).query_rope, /*inverse=*/true));
  // The ends of keys are one for all heads: their gradient is summed, and rotated once.
  void* const dend = l.Offset(dprojected, KeyEndBegin(l));
  MT_RETURN_IF_ERROR(l.kernels.SumHeads(l.stream, {.dtype = l.context.dtype,
                                                   .tokens = chunk.tokens,
                                                   .heads = Of(l).heads,
                                                   .width = Of(l).latent.rotary_dim,
                                                   .x = l.Offset(dkeys, PlainDim(l)),
                                                   .x_stride = k_width,
                                                   .x_head_stride = head,
                                                   .out = dend,
                                                   .out_stride = l.projected_width}));
  MT_RETURN_IF_ERROR(l.RotateHeads(chunk, dend, l.projected_width, /*heads=*/1, Of(l).key_rope,
                                   /*inverse=*/true));
  const int64_t row = Of(l).expanded_width();
  MT_RETURN_IF_ERROR(
      Copy(l, chunk, PlainDim(l), dkeys, k_width, head, dexpanded, row, ExpandedDim(l)));
  MT_RETURN_IF_ERROR(Copy(l, chunk, Of(l).value_dim(), dvalues, ValueWidth(l), Of(l).value_dim(),
                          l.Offset(dexpanded, PlainDim(l)), row, ExpandedDim(l)));
  MT_RETURN_IF_ERROR(ExpandBackward(l, chunk, KeyValueLatent(l), dexpanded, dprojected, gradient));
  if (HasQueryLatent(l)) {
    return ExpandBackward(l, chunk, QueryLatent(l), dqueries, dprojected, gradient);
  }
  return Copy(l, chunk, head, dqueries, q_width, head, dprojected, l.projected_width, head);
}

void LatentAttention::Announce(const BoundLayer& l, const LayerBackwardScratch& scratch) const {
  l.kernels.PrepareAttention(AttentionGradient(l, scratch));
}

}  // namespace megatrain

#include "engine/model/layer/attention_half.h"

#include "engine/base/status.h"
#include "engine/device/device.h"
#include "engine/model/layer/attention_part.h"
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

absl::Status Norm(const BoundLayer& l, const Chunk& chunk, const void* x) {
  if (!HasNorm(l)) return absl::OkStatus();
  return l.kernels.RmsNorm(
      l.stream, l.NormArgs(chunk, l.Rows(x, chunk, l.hidden), l.o.attention_norm, Normed(l, chunk),
                           l.a.attention_rstd + chunk.begin));
}

// Queues the product that gives the chunk's rows of what the part takes, and the part's own
// preparation.
absl::Status Project(const BoundLayer& l, const Chunk& chunk, const void* x) {
  MT_RETURN_IF_ERROR(Norm(l, chunk, x));
  MT_RETURN_IF_ERROR(l.Linear(chunk, Input(l, chunk, x), l.hidden, l.o.in_projection,
                              l.projected_width, l.Rows(l.a.projected, chunk, l.projected_width),
                              l.o.in_projection_bias));
  return PartOf(l.d).Prepare(l, chunk);
}

}  // namespace

absl::Status AttentionForward(const BoundLayer& l, const void* x) {
  MT_RETURN_IF_ERROR(l.ForChunks([&](const Chunk& chunk) { return Project(l, chunk, x); }));
  return PartOf(l.d).Mix(l);
}

absl::Status AttentionOutput(const BoundLayer& l, const Chunk& chunk, const void* x, void* y) {
  return AddBranch(l, chunk, AttentionBranch(l), l.Rows(l.a.mixed, chunk, l.mixed_width),
                   l.Rows(x, chunk, l.hidden), y);
}

absl::Status RecomputeAttention(const BoundLayer& l, const void* x) {
  if (!l.keeps_products) return AttentionForward(l, x);
  return l.keeps_all ? absl::OkStatus() : PartOf(l.d).Recompute(l);
}

bool NeedsAttentionGradient(const BoundLayer& l, const TileGradient& gradient) {
  return gradient.input || l.Trains(l.o.attention_norm, l.hidden) ||
         l.Trains(l.o.in_projection, l.projected_width * l.hidden) ||
         l.Trains(l.o.in_projection_bias, l.projected_width) || PartOf(l.d).Trains(l);
}

absl::Status AttentionOutputBackward(const BoundLayer& l, const Chunk& chunk, const void* dh,
                                     const LayerBackwardScratch& scratch,
                                     const TileGradient& gradient) {
  const ResidualBranch branch = AttentionBranch(l);
  MT_ASSIGN_OR_RETURN(const void* const dproduct, BranchGradient(l, chunk, branch, dh, gradient));
  MT_RETURN_IF_ERROR(BranchWeightGradient(l, chunk, branch, l.Rows(l.a.mixed, chunk, l.mixed_width),
                                          dproduct, gradient));
  if (!NeedsAttentionGradient(l, gradient)) return absl::OkStatus();
  return BranchInputGradient(l, chunk, branch, dproduct,
                             l.Rows(scratch.dmixed, chunk, l.mixed_width));
}

absl::Status MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                         const TileGradient& gradient) {
  return PartOf(l.d).MixBackward(l, scratch, gradient);
}

absl::Status AttentionInputBackward(const BoundLayer& l, const Chunk& chunk, const void* x,
                                    const LayerBackwardScratch& scratch, void* dh,
                                    const TileGradient& gradient) {
  MT_RETURN_IF_ERROR(PartOf(l.d).PrepareBackward(l, chunk, scratch, gradient));
  const int64_t width = l.projected_width;
  const void* const dprojected = l.Rows(scratch.dprojected, chunk, width);
  if (l.o.in_projection_bias >= 0) {
    MT_RETURN_IF_ERROR(l.BiasGradient(chunk, dprojected, width, l.o.in_projection_bias, gradient));
  }
  if (!l.keeps_all && l.Trains(l.o.in_projection, width * l.hidden)) {
    MT_RETURN_IF_ERROR(Norm(l, chunk, x));
  }
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, Input(l, chunk, x), l.hidden, dprojected, width,
                                            l.o.in_projection, gradient));
  if (!gradient.input && !l.Trains(l.o.attention_norm, l.hidden)) return absl::OkStatus();
  void* const dh_rows = l.Rows(dh, chunk, l.hidden);
  if (!HasNorm(l)) {
    return l.LinearInputGradient(chunk, dprojected, width, l.o.in_projection, l.hidden, dh_rows,
                                 /*scale=*/1.0, /*addend=*/dh_rows);
  }
  void* const normed = Normed(l, chunk);
  MT_RETURN_IF_ERROR(
      l.LinearInputGradient(chunk, dprojected, width, l.o.in_projection, l.hidden, normed));
  return l.kernels.RmsNormBackward(
      l.stream, l.NormBackwardArgs(chunk, l.Rows(x, chunk, l.hidden), l.o.attention_norm,
                                   l.a.attention_rstd + chunk.begin, normed, dh_rows, gradient));
}

}  // namespace megatrain

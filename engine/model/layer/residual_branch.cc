#include "engine/model/layer/residual_branch.h"

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

void* ProductRows(const BoundLayer& l, const Chunk& chunk, const ResidualBranch& branch) {
  return l.RowsIfKept(branch.product, l.keeps_products, chunk, l.hidden);
}

// Computes the product and its norm, which is added to `x` unless that is null.
absl::Status NormedProduct(const BoundLayer& l, const Chunk& chunk, const ResidualBranch& branch,
                           const void* in, const void* x, void* y) {
  void* const product = ProductRows(l, chunk, branch);
  MT_RETURN_IF_ERROR(l.Linear(chunk, in, branch.in, branch.weight, l.hidden, product, branch.bias,
                              /*addend=*/nullptr, branch.scale));
  RmsNormArgs args = l.NormArgs(chunk, product, branch.post_norm, y, branch.rstd + chunk.begin);
  args.addend = x;
  return l.kernels.RmsNorm(l.stream, args);
}

}  // namespace

ResidualBranch AttentionBranch(const BoundLayer& l) {
  return {.weight = l.o.o,
          .in = l.mixed_width,
          .scale = l.d.residual_scale,
          .bias = l.o.o_bias,
          .post_norm = l.o.attention_post_norm,
          .product = l.a.attention_branch,
          .rstd = l.a.attention_post_rstd};
}

ResidualBranch FeedForwardBranch(const BoundLayer& l) {
  return {.weight = l.o.down,
          .in = l.d.feed_forward.intermediate,
          .scale = l.d.residual_scale,
          .post_norm = l.o.feed_forward_post_norm,
          .product = l.a.feed_forward_branch,
          .rstd = l.a.feed_forward_post_rstd};
}

absl::Status AddBranch(const BoundLayer& l, const Chunk& chunk, const ResidualBranch& branch,
                       const void* in, const void* x, void* y) {
  if (branch.has_post_norm()) return NormedProduct(l, chunk, branch, in, x, y);
  return l.Linear(chunk, in, branch.in, branch.weight, l.hidden, y, branch.bias, x, branch.scale);
}

absl::Status RecomputeBranch(const BoundLayer& l, const Chunk& chunk, const ResidualBranch& branch,
                             const void* in) {
  if (!branch.has_post_norm()) return absl::OkStatus();
  return NormedProduct(l, chunk, branch, in, /*x=*/nullptr, l.a.branch_gradient);
}

absl::StatusOr<const void*> BranchGradient(const BoundLayer& l, const Chunk& chunk,
                                           const ResidualBranch& branch, const void* dh,
                                           const TileGradient& gradient) {
  if (!branch.has_post_norm()) return dh;
  RmsNormBackwardArgs args =
      l.NormBackwardArgs(chunk, ProductRows(l, chunk, branch), branch.post_norm,
                         branch.rstd + chunk.begin, dh, l.a.branch_gradient, gradient);
  args.accumulate = false;
  MT_RETURN_IF_ERROR(l.kernels.RmsNormBackward(l.stream, args));
  return l.a.branch_gradient;
}

absl::Status BranchInputGradient(const BoundLayer& l, const Chunk& chunk,
                                 const ResidualBranch& branch, const void* dproduct, void* din) {
  return l.LinearInputGradient(chunk, dproduct, l.hidden, branch.weight, branch.in, din,
                               branch.scale);
}

absl::Status BranchWeightGradient(const BoundLayer& l, const Chunk& chunk,
                                  const ResidualBranch& branch, const void* in,
                                  const void* dproduct, const TileGradient& gradient) {
  if (branch.bias >= 0) {
    MT_RETURN_IF_ERROR(l.BiasGradient(chunk, dproduct, l.hidden, branch.bias, gradient));
  }
  return l.LinearWeightGradient(chunk, in, branch.in, dproduct, l.hidden, branch.weight, gradient,
                                branch.scale);
}

}  // namespace megatrain

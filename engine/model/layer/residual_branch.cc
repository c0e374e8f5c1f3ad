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
  MT_RETURN_IF_ERROR(l.Linear(chunk, in, branch.in, branch.weight, l.hidden, product, branch.bias));
  RmsNormArgs args = l.NormArgs(chunk, product, branch.post_norm, y, branch.rstd + chunk.begin);
  args.addend = x;
  return l.kernels.RmsNorm(l.stream, args);
}

}  // namespace

ResidualBranch AttentionBranch(const BoundLayer& l) {
  return {l.o.o,
          l.mixed_width,
          l.o.o_bias,
          l.o.attention_post_norm,
          l.a.attention_branch,
          l.a.attention_post_rstd};
}

ResidualBranch FeedForwardBranch(const BoundLayer& l) {
  return {l.o.down,
          l.d.feed_forward.intermediate,
          -1,
          l.o.feed_forward_post_norm,
          l.a.feed_forward_branch,
          l.a.feed_forward_post_rstd};
}

absl::Status AddBranch(const BoundLayer& l, const Chunk& chunk, const ResidualBranch& branch,
                       const void* in, const void* x, void* y) {
  if (branch.has_post_norm()) return NormedProduct(l, chunk, branch, in, x, y);
  return l.Linear(chunk, in, branch.in, branch.weight, l.hidden, y, branch.bias, x,
                  l.d.residual_scale);
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
                               l.d.residual_scale);
}

absl::Status BranchWeightGradient(const BoundLayer& l, const Chunk& chunk,
                                  const ResidualBranch& branch, const void* in,
                                  const void* dproduct, const TileGradient& gradient) {
  if (branch.bias >= 0) {
    MT_RETURN_IF_ERROR(l.BiasGradient(chunk, dproduct, l.hidden, branch.bias, gradient));
  }
  return l.LinearWeightGradient(chunk, in, branch.in, dproduct, l.hidden, branch.weight, gradient,
                                l.d.residual_scale);
}

}  // namespace megatrain

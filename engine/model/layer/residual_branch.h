// Computes the residual branch at the end of a half of a decoder layer: the last product, the norm
// after it if there is one, and the residual connection
//   y = x + scale * in W^T + bias   or   y = x + post_norm(scale * in W^T + bias).
// Each function computes one chunk's rows, queues work on the stream of `l`, and returns the errors
// of its kernels.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_RESIDUAL_BRANCH_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_RESIDUAL_BRANCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

// The tensors and the sizes of a branch. `weight`, `bias` and `post_norm` are offsets in the
// layer's tile; -1 if the tensor is absent.
struct ResidualBranch {
  int64_t weight = 0;      // [hidden, in]
  int64_t in = 0;          // the width of the product's input
  double scale = 1.0;      // of the product; for the two halves residual_scale
  int64_t bias = -1;       // [hidden]
  int64_t post_norm = -1;  // [hidden]
  // The activations of LayerActivations; null without post_norm.
  void* product = nullptr;
  float* rstd = nullptr;

  bool has_post_norm() const { return post_norm >= 0; }
};
// Return the branches of the two halves of a dense layer. A layer with experts has only the first.
ResidualBranch AttentionBranch(const BoundLayer& l);
ResidualBranch FeedForwardBranch(const BoundLayer& l);

// Computes the chunk's rows `y` of the residual stream after the branch, from its rows `x` before
// the branch and the product's input `in` [tokens, branch.in]. y may be x.
absl::Status AddBranch(const BoundLayer& l, const Chunk& chunk, const ResidualBranch& branch,
                       const void* in, const void* x, void* y);

// Recomputes the product and the norm's statistics, which the backward pass reads, from the
// product's input `in` [tokens, branch.in]. Overwrites LayerActivations::branch_gradient. Does
// nothing without a norm. Not needed if products were kept.
absl::Status RecomputeBranch(const BoundLayer& l, const Chunk& chunk, const ResidualBranch& branch,
                             const void* in);

// Computes the gradient with respect to the scaled product from `dh`, the chunk's rows of the
// gradient with respect to y. Returns the chunk's rows of it: `dh` itself without a post_norm, else
// LayerActivations::branch_gradient, which holds them until the next call of BranchGradient or
// RecomputeBranch. The gradient of post_norm's weight goes to `gradient`. The two functions below
// apply the factor `scale`.
absl::StatusOr<const void*> BranchGradient(const BoundLayer& l, const Chunk& chunk,
                                           const ResidualBranch& branch, const void* dh,
                                           const TileGradient& gradient);
// Computes din [tokens, branch.in], the gradient with respect to the product's input, from
// `dproduct`, the result of BranchGradient.
absl::Status BranchInputGradient(const BoundLayer& l, const Chunk& chunk,
                                 const ResidualBranch& branch, const void* dproduct, void* din);
// Computes the gradients of weight and bias, which go to `gradient`, from the product's input `in`
// and `dproduct`, the result of BranchGradient.
absl::Status BranchWeightGradient(const BoundLayer& l, const Chunk& chunk,
                                  const ResidualBranch& branch, const void* in,
                                  const void* dproduct, const TileGradient& gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_RESIDUAL_BRANCH_H_

// Computes the end of a half of a decoder layer: the last product, the norm after it if there is
// one, and the residual connection
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

// Offsets are those in the layer's tile; -1 if the tensor is absent.
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
// Return the branches of the two halves of a dense layer; the first is also that of a layer with
// experts.
ResidualBranch AttentionBranch(const BoundLayer& l);
ResidualBranch FeedForwardBranch(const BoundLayer& l);

// Computes the chunk's rows `y` of the stream after the branch from those before it, `x`, and the
// product's input `in` [tokens, in]. y may be x.
absl::Status AddBranch(const BoundLayer& l, const Chunk& chunk, const ResidualBranch& branch,
                       const void* in, const void* x, void* y);

// Recomputes what the backward pass reads of a branch with a norm, from the product's input `in`.
// Overwrites LayerActivations::branch_gradient. Not needed if products were kept, or without a
// norm.
absl::Status RecomputeBranch(const BoundLayer& l, const Chunk& chunk, const ResidualBranch& branch,
                             const void* in);

// Computes the gradient by the product from `dh`, the gradient by y, and adds that of post_norm to
// `gradient`. Returns the rows of the former: `dh` itself without a post_norm, else
// LayerActivations::branch_gradient, which holds them until the next call of BranchGradient or
// RecomputeBranch. The factor `scale` is left to the two functions below.
absl::StatusOr<const void*> BranchGradient(const BoundLayer& l, const Chunk& chunk,
                                           const ResidualBranch& branch, const void* dh,
                                           const TileGradient& gradient);
// Computes din [tokens, in], the gradient by the product's input, from the result of
// BranchGradient.
absl::Status BranchInputGradient(const BoundLayer& l, const Chunk& chunk,
                                 const ResidualBranch& branch, const void* dproduct, void* din);
// Adds the gradients of weight and bias to `gradient`.
absl::Status BranchWeightGradient(const BoundLayer& l, const Chunk& chunk,
                                  const ResidualBranch& branch, const void* in,
                                  const void* dproduct, const TileGradient& gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_RESIDUAL_BRANCH_H_

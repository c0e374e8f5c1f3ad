// Computes the second half of a dense decoder layer: norm, gate and up projection, the gated unit,
// and down projection. The norm may be absent (OLMo 2). Each function computes one chunk's rows,
// queues work on the stream of `l`, and returns the errors of its kernels. What the arguments point
// to on the device must stay valid until the stream has run. Middle is BoundLayer::Middle, the
// hidden states between the two halves, and `a` is BoundLayer::a. y and dh are device memory of
// type context.dtype, [chunk.tokens, hidden], from the chunk's first row on.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_MLP_HALF_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_MLP_HALF_H_

#include "absl/status/status.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

// Computes the chunk's rows `y` of the half's result: Middle plus the MLP's branch
// (residual_branch.h). REQUIRES: the chunk's Middle is computed (AttentionOutput).
absl::Status MlpForward(const BoundLayer& l, const Chunk& chunk, void* y);

// Recomputes the activations that MlpBackward reads and that were not kept. Also computes the
// chunk's rows `y` of the half's result, unless `y` is null or BoundLayer::keeps_products is true.
// REQUIRES: the chunk's Middle is kept or computed.
absl::Status RecomputeMlp(const BoundLayer& l, const Chunk& chunk, void* y = nullptr);

// Computes the half's backward pass for the chunk, once. The chunk's rows `dh` have the gradient
// with respect to y on entry and that with respect to Middle on return. Weight gradients go to
// `gradient`. The gradients with respect to a.gate_up and, with a norm, a.feed_forward_normed
// overwrite these buffers; a.activated is overwritten too. REQUIRES: RecomputeMlp was called for
// this chunk, and since then for no other, unless everything was kept.
absl::Status MlpBackward(const BoundLayer& l, const Chunk& chunk, void* dh,
                         const TileGradient& gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_MLP_HALF_H_

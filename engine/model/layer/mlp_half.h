// Computes the second half of a decoder layer: norm, gate and up projection, the gated unit, and
// down projection. Each function computes one chunk's rows, queues work on the stream of `l`, and
// returns the errors of its kernels.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_MLP_HALF_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_MLP_HALF_H_

#include "absl/status/status.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

// Computes the chunk's rows `y` of middle + the MLP's branch (residual_branch.h). REQUIRES: the
// chunk's Middle is computed (AttentionOutput).
absl::Status MlpForward(const BoundLayer& l, const Chunk& chunk, void* y);

// Recomputes the activations that MlpBackward reads and that were not kept. Computes also the
// chunk's rows `y` of the result, unless `y` is null or products were kept. REQUIRES: the chunk's
// Middle is kept or computed.
absl::Status RecomputeMlp(const BoundLayer& l, const Chunk& chunk, void* y = nullptr);

// `dh`, the chunk's rows, has the gradient by y on entry and by Middle on return. Weight gradients
// go to `gradient`. The gradients by a.gate_up and a.feed_forward_normed overwrite these;
// a.activated is overwritten too. REQUIRES: RecomputeMlp of this chunk, and since then of no other,
// unless everything was kept.
absl::Status MlpBackward(const BoundLayer& l, const Chunk& chunk, void* dh,
                         const TileGradient& gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_MLP_HALF_H_

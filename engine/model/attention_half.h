// The first half of a decoder layer: norm, queries, keys and values, rotation, attention, output
// projection. Stateless functions; those without a chunk do the whole micro-batch.
#ifndef MEGATRAIN_ENGINE_MODEL_ATTENTION_HALF_H_
#define MEGATRAIN_ENGINE_MODEL_ATTENTION_HALF_H_

#include "absl/status/status.h"
#include "engine/device/kernels.h"
#include "engine/model/bound_layer.h"

namespace megatrain {

// From x to the attention's output. `x` [all tokens, hidden], here and below.
absl::Status AttentionForward(const BoundLayer& l, const void* x);
// middle = x + output projection.
absl::Status AttentionOutput(const BoundLayer& l, const Chunk& chunk, const void* x);

// Makes again what the backward functions read and was not kept.
absl::Status RecomputeAttention(const BoundLayer& l, const void* x);

// The gradient goes backwards through the three functions in turn. `dh`: the chunk's rows of the
// gradient by the layer's middle.
absl::Status AttentionOutputBackward(const BoundLayer& l, const Chunk& chunk, const void* dh,
                                     const LayerBackwardScratch& scratch,
                                     const TileGradient& gradient);
// Arguments of the gradient of attention itself, which the kernels are also asked to prepare for.
AttentionBackwardArgs AttentionGradient(const BoundLayer& l, const LayerBackwardScratch& scratch);
// From the gradient by q, k and v to that by x, which is added to `dh` [all tokens, hidden].
absl::Status AttentionInputBackward(const BoundLayer& l, const Chunk& chunk, const void* x,
                                    const LayerBackwardScratch& scratch, void* dh,
                                    const TileGradient& gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_ATTENTION_HALF_H_

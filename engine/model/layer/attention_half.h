// Computes the first half of a decoder layer: norm, input projection, the part that mixes tokens
// (attention_part.h), and output projection. Functions with a chunk compute its rows, the others
// the whole micro-batch. They queue work on the stream of `l` and return the errors of its kernels.
//
// In all functions x [all tokens, hidden] is the layer's input, and `a` is BoundLayer::a. Tensors
// are in device memory, which must stay valid until the stream has run.
//
// The backward pass calls AttentionOutputBackward for every chunk, then MixBackward, then
// AttentionInputBackward, once for every chunk. Weight gradients go to `gradient`.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_ATTENTION_HALF_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_ATTENTION_HALF_H_

#include "absl/status/status.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

// Computes the activations from x to a.mixed.
absl::Status AttentionForward(const BoundLayer& l, const void* x);
// Computes the chunk's rows `y` of the residual stream after the half: x plus the branch of a.mixed
// (AttentionBranch in residual_branch.h). REQUIRES: AttentionForward.
absl::Status AttentionOutput(const BoundLayer& l, const Chunk& chunk, const void* x, void* y);

// Recomputes the activations up to a.mixed that were not kept, except the normed input, which
// AttentionInputBackward recomputes. Call it before the backward functions below.
absl::Status RecomputeAttention(const BoundLayer& l, const void* x);

// Returns true if the backward pass must go through attention: for the gradient with respect to the
// layer's input, or for a weight in or before attention. If it is false, the caller calls
// AttentionOutputBackward only.
bool NeedsAttentionGradient(const BoundLayer& l, const TileGradient& gradient);
// Computes the gradients of the output projection and of the norm after it from `dh`, the chunk's
// rows of the gradient with respect to AttentionOutput's result. If NeedsAttentionGradient, also
// computes the chunk's rows of scratch.dmixed, the gradient with respect to a.mixed. REQUIRES:
// RecomputeAttention. If there is a norm after attention and products were not kept,
// AttentionOutput was called for this chunk, and since then for no other.
absl::Status AttentionOutputBackward(const BoundLayer& l, const Chunk& chunk, const void* dh,
                                     const LayerBackwardScratch& scratch,
                                     const TileGradient& gradient);
// Calls AttentionPart::MixBackward of the layer's part.
absl::Status MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                         const TileGradient& gradient);
// Computes the weight gradients of the input projection and of the part's own preparation, and the
// gradient with respect to the chunk's rows of x, from the result of MixBackward. Adds the latter
// to those rows of `dh` [all tokens, hidden]. Leaves it out if neither the layers before nor the
// norm's weight need it. Overwrites the chunk's rows of scratch.dprojected, of scratch.dexpanded
// and of the normed input.
absl::Status AttentionInputBackward(const BoundLayer& l, const Chunk& chunk, const void* x,
                                    const LayerBackwardScratch& scratch, void* dh,
                                    const TileGradient& gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_ATTENTION_HALF_H_

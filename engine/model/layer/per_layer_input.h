// Computes the last branch of a layer with per-layer embeddings (PerLayerInputDescription). Let x
// be the residual stream after the feed-forward part, x_0 the token's embedding and E the layer's
// own table:
//   p = norm(W_model x_0 / sqrt(hidden)) + scale E[id]
//   y = x + post_norm(W_out (activation(W_gate x) * p) / sqrt(2))
// `scale` is EmbeddingScale of sqrt(width). The weight of the first norm is the same in all layers;
// x_0 and this weight are in SharedRows.
//
// Functions with a chunk compute its rows, the others the whole micro-batch. They queue work on the
// stream of `l` and return the errors of its kernels. Weight gradients go to `gradient`. REQUIRES:
// HasPerLayerInput.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_PER_LAYER_INPUT_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_PER_LAYER_INPUT_H_

#include "absl/status/status.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

inline bool HasPerLayerInput(const BoundLayer& l) { return l.d.per_layer_input.width > 0; }

// Returns the place from which the backward pass reads the chunk's rows of x. The caller writes
// them there: in the forward pass if products are kept, else in the backward pass, before
// RecomputePerLayerInput.
void* PerLayerStream(const BoundLayer& l, const Chunk& chunk);

// Computes the chunk's rows `y` from its rows `x`, which may be y.
absl::Status AddPerLayerInput(const BoundLayer& l, const Chunk& chunk, const void* x, void* y);

// Recomputes what PerLayerInputBackward reads, from PerLayerStream. Not needed if products were
// kept.
absl::Status RecomputePerLayerInput(const BoundLayer& l, const Chunk& chunk);

// Computes the backward pass of the chunk. The chunk's rows `dh` hold the gradient with respect to
// y on entry and that with respect to x on return. The chunk's rows of scratch.dper_layer receive
// the gradient with respect to p, of which PerLayerTableBackward makes the table's. The last layer
// of the model writes the gradients with respect to x_0 and to the shared weight in SharedRows, and
// the other layers add to them. Without gradient.input the gradient with respect to x_0 is left
// out. Overwrites PerLayerActivations. REQUIRES: RecomputePerLayerInput was called for this chunk,
// and since then for no other, unless products were kept.
absl::Status PerLayerInputBackward(const BoundLayer& l, const Chunk& chunk, void* dh,
                                   const LayerBackwardScratch& scratch,
                                   const TileGradient& gradient);

// Computes the gradient of the table, unless the table is frozen. REQUIRES: PerLayerInputBackward
// of all chunks.
absl::Status PerLayerTableBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                   const TileGradient& gradient);

// Adds the sum of all layers' gradients with respect to x_0 to `dh` [all tokens, hidden], the
// gradient with respect to the first layer's input. REQUIRES: PerLayerInputBackward of all chunks
// of all layers, with gradient.input.
absl::Status AddEmbeddingGradient(const BoundLayer& l, void* dh);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_PER_LAYER_INPUT_H_

// Computes a decoder layer as its LayerDescription says, forward and backward. The functions keep
// no state: the caller passes weights, activations and gradients. context.layer and context.tile
// name the layer and its tile. The functions queue work on the context's stream and return the
// errors of its kernels. All memory must stay valid until that work is done.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_DECODER_LAYER_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_DECODER_LAYER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/layer/activations.h"
#include "engine/model/layer/layer_context.h"

namespace megatrain {

// Computes y = layer(x), and the activations. `weights` is the layer's tile in its weight buffer. x
// and y are [tokens, hidden] of context.dtype and must not overlap. A layer that makes a key_set
// writes it to batch.shared, unless it attends over the cache. If there is a context.cache, the
// layer's own keys and values are stored in it, or a delta net's states in it are advanced.
// REQUIRES: the layer is dense.
absl::Status DecoderLayerForward(const LayerContext& context, const void* weights,
                                 const MicroBatchView& batch, const void* x,
                                 const LayerActivations& activations, void* y);

// Does the same for the first half of a layer with experts: y = x + attention. The second half is
// in expert_half.h. REQUIRES: the layer has experts.
absl::Status AttentionStageForward(const LayerContext& context, const void* weights,
                                   const MicroBatchView& batch, const void* x,
                                   const LayerActivations& activations, void* y);

// Announces the attention calls of DecoderLayerForward or AttentionStageForward and of
// DecoderLayerBackward to the kernels, so that the kernels can prepare them in advance. Reads the
// sizes and document_starts of `batch` and the addresses in batch.shared, during the call only.
// context.stream may be null. `workspace_bytes` is LayerBackwardScratch::workspace_bytes, or 0 if
// there will be no backward pass. REQUIRES: batch.shared has its key_sets.
void PrepareDecoderLayer(const LayerContext& context, const MicroBatchView& batch,
                         int64_t workspace_bytes);

// Returns the device bytes that the backward pass of attention needs in any one of the layers, for
// a micro-batch of `tokens` tokens in documents of up to `sequence` tokens.
int64_t AttentionWorkspaceBytes(const ModelDescription& model, DType dtype, int64_t tokens,
                                int64_t sequence, const KernelSizes& sizes);

// Returns the device bytes of the layer's LayerCache::data; 0 for a layer that uses the keys of
// another.
int64_t LayerCacheBytes(const LayerDescription& layer, DType dtype, const CacheSize& size);

// The elements per token of dmixed, of dprojected (or dper_layer) and of dexpanded in
// LayerBackwardScratch.
struct LayerBackwardWidths {
  int64_t mixed = 0, projected = 0, expanded = 0;
};
// Returns the widths that suffice for any one of the layers.
LayerBackwardWidths BackwardWidths(const ModelDescription& model);

// Recomputes the activations that the forward pass did not keep (activations.keep), then computes
// the gradients; of a layer with experts those of the first half only. `x` is that of the forward
// pass. The activations are overwritten.
//
// `dh` [tokens, hidden], of context.dtype, holds the gradient of the loss by y on entry and by x on
// return. Without `input_gradient`, when nothing before this layer is trained, `dh` is undefined on
// return, and the pass ends at the output projection of attention if no weight in or before
// attention is trained.
//
// Weight gradients are added to `gradient` (FP32, in the tile's layout; null if all of the tile is
// frozen) chunk by chunk, in token order. Those of sinks, of a delta net's own tensors and of the
// per-layer table are added for the whole micro-batch at once. With `first` the weight gradients
// replace the content of `gradient`. Padding and frozen tensors are not written.
//
// REQUIRES: a micro-batch goes through the layers from the last one down. The last layer that has
// gradients in batch.shared writes them, and those before add to them.
absl::Status DecoderLayerBackward(const LayerContext& context, const void* weights,
                                  const MicroBatchView& batch, const void* x,
                                  const LayerActivations& activations,
                                  const LayerBackwardScratch& scratch, void* dh, float* gradient,
                                  bool first, bool input_gradient = true);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_DECODER_LAYER_H_

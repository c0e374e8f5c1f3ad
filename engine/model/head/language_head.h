// Computes the two ends of the model: the token embedding, and the final norm with LM head and
// cross-entropy. The head works in chunks of tokens, so that the logits of a large micro-batch are
// never in memory at once. T is the activation type, context.dtype.
//
// The functions that return a status queue work on the context's stream and return the errors of
// its kernels. All memory must stay valid until that work is done.
#ifndef MEGATRAIN_ENGINE_MODEL_HEAD_LANGUAGE_HEAD_H_
#define MEGATRAIN_ENGINE_MODEL_HEAD_LANGUAGE_HEAD_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/model/layer/layer_context.h"

namespace megatrain {

// Returns the tokens of a chunk of logits: a power of two within `max` (KernelSizes::LmHeadChunk),
// but at least 64, or the whole micro-batch if that is less. It depends on the shapes and the kind
// of device only, so that bits do not depend on free memory. REQUIRES: max.tokens is a power of
// two, 64 at least.
int64_t HeadChunkTokens(const ModelDescription& config, int64_t micro_batch_tokens,
                        const LmHeadChunkMax& max);

// Device memory that the head needs.
struct HeadScratch {
  int64_t chunk_tokens = 0;
  float* logits = nullptr;  // [chunk_tokens, vocabulary], overwritten by its gradient
  void* normed = nullptr;   // T [chunk_tokens, hidden], overwritten by its gradient
  float* rstd = nullptr;    // [chunk_tokens]
};

// Returns the bytes of the block for PlaceHeadScratch.
int64_t HeadScratchBytes(const ModelDescription& config, DType dtype, int64_t chunk_tokens);
// Returns pointers into `block`, which has HeadScratchBytes bytes and must outlive the result.
HeadScratch PlaceHeadScratch(const ModelDescription& config, DType dtype, int64_t chunk_tokens,
                             void* block);

// Writes the embeddings of batch.ids to x, T [tokens, hidden]. If batch.shared.embedding is not
// null, also copies x and the weight of the per-layer inputs' norm to batch.shared (shared_rows.h).
// `weights` is tile 0, on the device or in host memory that the device can read (the pool's).
absl::Status EmbeddingForward(const LayerContext& context, const void* weights,
                              const MicroBatchView& batch, void* x);
// Adds the gradient of the embedding, and of the norm in SharedRows, to `gradient` (FP32, in the
// layout of tile 0; not null). With `first`, which marks the first micro-batch, the gradients
// replace its content. The gradient of a tied matrix is always added, because the head's gradient
// is there already. The row of the model's padding_id gets no gradient. Leaves out a frozen
// embedding, and the norm if SharedRows has no gradient of it. dh, T [tokens, hidden], is the
// gradient with respect to x.
absl::Status EmbeddingBackward(const LayerContext& context, const MicroBatchView& batch,
                               const void* dh, float* gradient, bool first);

// In the functions below `weights` is the head's tile on the device, and x, T [tokens, hidden], is
// the last layer's output of the whole micro-batch.

// Computes the loss of each prediction, `losses` (FP32 [tokens] on the device; 0 where masked), and
// the gradients of the sum of scale * loss_weights[i] * losses[i]. `loss_weights` is FP32 [tokens]
// on the device; null: all are 1. The gradient with respect to x is written to dh, T [tokens,
// hidden], which may be x itself; without `input_gradient` dh is undefined on return. The gradient
// with respect to the weights is added to `gradient` (FP32, in the layout of the head's tile; null
// if all of the tile is frozen), or with `first` replaces its content. Frozen tensors are not
// written.
absl::Status HeadForwardBackward(const LayerContext& context, const void* weights,
                                 const MicroBatchView& batch, const void* x, float scale,
                                 const HeadScratch& scratch, float* losses, void* dh,
                                 float* gradient, bool first, bool input_gradient = true,
                                 const float* loss_weights = nullptr);

// Computes the losses as HeadForwardBackward does, without gradients. Overwrites `scratch`.
absl::Status HeadLoss(const LayerContext& context, const void* weights, const MicroBatchView& batch,
                      const void* x, const HeadScratch& scratch, float* losses);

// Computes the losses as HeadLoss does, and from them `results` [pairs], on the device, of the
// batch's pairs of answers. Unless `loss_weights` [tokens] is null, its elements of the pairs'
// tokens receive the weights with which HeadForwardBackward, at a scale of 1, gives the gradient of
// `scale` times the sum of the pairs' losses. HeadForwardBackward then computes the logits again,
// because the weights of a pair depend on all of its tokens.
absl::Status HeadPreference(const LayerContext& context, const void* weights,
                            const MicroBatchView& batch, const void* x,
                            const PreferenceObjective& objective, double scale,
                            const HeadScratch& scratch, float* losses, PreferenceResult* results,
                            float* loss_weights);

// Computes the logits of tokens [begin, end) in chunks and calls sink(first, tokens, logits) for
// each, with a device pointer to FP32 [tokens, vocabulary]. The logits do not have the softcap;
// CapLogits applies it. `first` counts from the micro-batch's start. When `sink` is called, the
// logits may still be queued on the stream. Work that `sink` queues on the stream may read them.
// `scratch` is used again for the next chunk. Stops at the first error of `sink` and returns it.
absl::Status HeadLogits(
    const LayerContext& context, const void* weights, const void* x, int64_t begin, int64_t end,
    const HeadScratch& scratch,
    absl::FunctionRef<absl::Status(int64_t first, int64_t tokens, const float* logits)> sink);

// Applies the model's softcap, if it has one, to logits in host memory.
void CapLogits(const ModelDescription& model, absl::Span<float> logits);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_HEAD_LANGUAGE_HEAD_H_

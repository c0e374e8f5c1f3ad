// The two ends of the model: token embedding, and final norm + LM head + cross-entropy in chunks of
// tokens, so that logits are never whole.
#ifndef MEGATRAIN_ENGINE_MODEL_LANGUAGE_HEAD_H_
#define MEGATRAIN_ENGINE_MODEL_LANGUAGE_HEAD_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/model/decoder_layer.h"

namespace megatrain {

// Tokens a chunk of logits has, a power of two or the whole micro-batch: from shapes and the kind
// of device alone, so that bits do not depend on free memory.
int64_t HeadChunkTokens(const ModelConfig& config, int64_t micro_batch_tokens,
                        const HeadChunkMax& max);

// Device memory of the head.
struct HeadScratch {
  int64_t chunk_tokens = 0;
  float* logits = nullptr;  // [chunk_tokens, vocabulary], FP32, becomes dlogits
  void* normed = nullptr;   // T [chunk_tokens, hidden], becomes its gradient
  float* rstd = nullptr;    // [chunk_tokens]
};

int64_t HeadScratchBytes(const ModelConfig& config, DType dtype, int64_t chunk_tokens);
// `block`: HeadScratchBytes.
HeadScratch PlaceHeadScratch(const ModelConfig& config, DType dtype, int64_t chunk_tokens,
                             void* block);

absl::Status EmbeddingForward(const LayerContext& context, const void* weights,
                              const MicroBatchView& batch, void* x);
// dh [tokens, hidden]; gradient (FP32, layout of tile 0) accumulates, or with `first` is written,
// as in DecoderLayerBackward.
absl::Status EmbeddingBackward(const LayerContext& context, const MicroBatchView& batch,
                               const void* dh, float* gradient, bool first);

// losses [tokens] (device, FP32): each prediction's loss. dh [tokens, hidden] = gradient by x of
// the sum of losses times `scale`; gradient (layout of the head's tile) accumulates, or with
// `first` is written, as in DecoderLayerBackward. dh may be x.
absl::Status HeadForwardBackward(const LayerContext& context, const void* weights,
                                 const MicroBatchView& batch, const void* x, float scale,
                                 const HeadScratch& scratch, float* losses, void* dh,
                                 float* gradient, bool first);

// Losses only.
absl::Status HeadLoss(const LayerContext& context, const void* weights, const MicroBatchView& batch,
                      const void* x, const HeadScratch& scratch, float* losses);

// Logits of tokens [begin, end), in chunks: sink(first token, tokens, device pointer to [tokens,
// vocabulary]).
absl::Status HeadLogits(
    const LayerContext& context, const void* weights, const void* x, int64_t begin, int64_t end,
    const HeadScratch& scratch,
    absl::FunctionRef<absl::Status(int64_t first, int64_t tokens, const float* logits)> sink);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LANGUAGE_HEAD_H_

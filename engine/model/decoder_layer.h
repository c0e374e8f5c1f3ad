// The layer template of a decoder layer (Llama, Qwen2, Qwen3): stateless functions over views.
// Weights and gradients are bound at the call, never owned.
#ifndef MEGATRAIN_ENGINE_MODEL_DECODER_LAYER_H_
#define MEGATRAIN_ENGINE_MODEL_DECODER_LAYER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/device/kernels.h"
#include "engine/model/activations.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// One micro-batch as the device sees it.
struct MicroBatchView {
  int64_t tokens = 0;
  const int32_t* ids = nullptr;               // device [tokens]
  const int32_t* positions = nullptr;         // device [tokens]
  const int32_t* targets = nullptr;           // device [tokens], < 0: masked
  const int32_t* sorted_positions = nullptr;  // device [tokens]
  const int32_t* document_bounds = nullptr;   // device [tokens, 2], as in AttentionArgs
  const int32_t* document_starts = nullptr;   // host [documents + 1]
  int64_t documents = 0;
};

// What every template call needs of its surroundings.
struct LayerContext {
  const ModelLayout* layout = nullptr;
  DType dtype = DType::kF32;
  AttentionChoice attention = AttentionChoice::kAuto;
  Kernels* kernels = nullptr;
  Stream* stream = nullptr;
  const float* rope_cosine = nullptr;  // device [positions, head_dim / 2]
  const float* rope_sine = nullptr;    // device [positions, head_dim / 2]
};

// y = layer(x). `weights` is the tile in its weight buffer; x [tokens, hidden]; y [tokens, hidden],
// not x; null y stops before the last product: what recomputation needs.
absl::Status DecoderLayerForward(const LayerContext& context, const void* weights,
                                 const MicroBatchView& batch, const void* x,
                                 const LayerActivations& activations, void* y);

// Announces the attention calls of both functions for such a batch, of which only numbers and
// document_starts are looked at, to the kernels. `workspace_bytes`: backward's, 0: there will be
// none. The context's stream is not used.
void PrepareDecoderLayer(const LayerContext& context, const MicroBatchView& batch,
                         int64_t workspace_bytes);

// Device memory for backward beside the activations.
struct LayerBackwardScratch {
  void* dattention = nullptr;  // T [tokens, heads, head_dim]
  void* dqkv = nullptr;        // T [tokens, heads + 2 kv_heads, head_dim]
  void* workspace = nullptr;   // AttentionBackwardWorkspaceBytes
  int64_t workspace_bytes = 0;
};

// Recomputes what `level` did not keep, then: dh (in: gradient by y, out: gradient by x) [tokens,
// hidden]; gradient (FP32, tile layout) accumulates. The activations are overwritten.
absl::Status DecoderLayerBackward(const LayerContext& context, const void* weights,
                                  const MicroBatchView& batch, const void* x, KeepLevel level,
                                  const LayerActivations& activations,
                                  const LayerBackwardScratch& scratch, void* dh, float* gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_DECODER_LAYER_H_

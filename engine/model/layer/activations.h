// LayerActivations points to the tensors that a decoder layer computes for one micro-batch.
// KeepLevel says which of them are kept for the backward pass. For a layer with experts these are
// the tensors of its attention half alone; those of the other half (expert_half.h) are not kept.
//
// Everything in a layer except attention runs in chunks of tokens. A large tensor that attention
// does not use is therefore held for one chunk only, unless it is kept.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_ACTIVATIONS_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_ACTIVATIONS_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/model_description.h"

namespace megatrain {

// kNothing keeps the layer's input only. kCheapRecomputed keeps the results of matrix products,
// attention and the delta rule; it recomputes the outputs of norms, gates and convolutions, (with a
// QkNorm) the rotated queries and keys, and the tensors expanded from latents. kEverything keeps
// all tensors that the backward pass reads, except for the output of the gated unit, which its
// backward kernel recomputes.
enum class KeepLevel { kNothing, kCheapRecomputed, kEverything };

// Cuts a block of device memory into tensors. If `base` is null it only counts bytes.
struct TensorCursor {
  // In bytes. It suffices for vectorized access on all devices.
  static constexpr int64_t kAlignment = 256;

  char* base = nullptr;  // aligned to kAlignment
  int64_t offset = 0;

  // Takes the next `bytes` bytes, and unless `base` is null sets *pointer to them.
  template <typename T>
  void Take(T** pointer, int64_t bytes) {
    if (base != nullptr) *pointer = reinterpret_cast<T*>(base + offset);
    offset += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
};

// Pointers to device memory. T is the activation dtype, t the number of tokens of the micro-batch
// and n that of a chunk.

// The activations of SoftmaxAttention.
struct SoftmaxActivations {
  // Kept from kCheapRecomputed on.
  //
  // The statistics of the norms of queries, then of keys: [t, heads] and [t, kv_heads] for
  // QkNorm::kHead, [t] and [t] for kFull; null for kNone. A layer without keys of its own uses the
  // first part only.
  float* qk_rstd = nullptr;
  float* value_rstd = nullptr;  // [t, kv_heads]; with a value_norm and keys of its own only
  float* lse = nullptr;         // [heads, t]
  void* attended = nullptr;     // T [t, heads, head_dim]: before the gate; with an output_gate only
  // Kept at kEverything.
  void* qk_rotated = nullptr;  // T [t, AttentionDescription::rotated_width]; with a QkNorm only
};

// The activations of LatentAttention.
struct LatentActivations {
  // Kept from kCheapRecomputed on.
  float* query_rstd = nullptr;      // [t]; of the norm of the queries' latent, null without one
  float* key_value_rstd = nullptr;  // [t]; of the norm of the latent of keys and values
  float* lse = nullptr;             // [heads, t]
  // Kept at kEverything. They are many times as large as the latents.
  void* query_normed = nullptr;      // T [t, query_rank]; null as query_rstd
  void* key_value_normed = nullptr;  // T [t, key_value_rank]
  void* queries = nullptr;           // T [t, heads, head_dim], rotated
  void* keys = nullptr;              // T [t, heads, head_dim], rotated
  void* values = nullptr;            // T [t, heads, value_dim]
  // Never kept.
  void* expanded = nullptr;  // T [n, heads, head_dim - rotary_dim + value_dim]
};

// The activations of DeltaNet.
struct DeltaActivations {
  // Kept from kCheapRecomputed on.
  void* out = nullptr;  // T [t, value_heads, value_dim]: the delta rule's result before its norm
  // Kept at kEverything.
  void* convolved = nullptr;  // T [t, channels]
};

// The activations of the layer's per-layer input (per_layer_input.h); all null without one.
struct PerLayerActivations {
  // Kept from kCheapRecomputed on.
  float* rstd = nullptr;      // [t]; of the norm of what is projected
  void* stream = nullptr;     // T [t, hidden] kept, else [n, hidden]; residual stream after the MLP
  void* projected = nullptr;  // T [t, width] kept, else [n, width]; from the embedding
  void* gate_up = nullptr;    // T [t, 2, width] kept, else [n, 2, width]
  void* branch = nullptr;     // T [t, hidden] kept, else [n, hidden]; the input of the last norm
  float* post_rstd = nullptr;  // [t]
  // Never kept.
  void* activated = nullptr;  // T [n, width]
};

// The one of `softmax`, `latent` and `delta` that belongs to the layer's AttentionKind is set. With
// experts the tensors of the second half are null or empty.
struct LayerActivations {
  KeepLevel keep = KeepLevel::kNothing;
  // Kept from kCheapRecomputed on.
  float* attention_rstd = nullptr;  // [t]; of attention's norm
  // T [t, projected_width], the result of the input projection. For SoftmaxAttention its rows have
  // queries, gates, keys and values; queries and keys are rotated in place unless there is a
  // QkNorm. For LatentAttention they have the latents (latent_attention.h). For DeltaNet they have
  // queries, keys and values (channels), z, b and a.
  void* projected = nullptr;
  // T [t, mixed_width], the input of the output projection. If it is the result of a gate, which is
  // cheap to recompute, it is kept at kEverything only.
  void* mixed = nullptr;
  SoftmaxActivations softmax;
  LatentActivations latent;
  DeltaActivations delta;
  float* feed_forward_rstd = nullptr;  // [t]; of the MLP's norm
  // The residual stream after attention. T [t, hidden] if it is kept; else, and with experts at
  // every level, T [n, hidden].
  void* middle = nullptr;
  void* gate_up = nullptr;  // T [t, 2, intermediate] kept, else [n, 2, intermediate]
  // The results of the last products of attention and MLP, if a norm follows them.
  void* attention_branch = nullptr;         // T [t, hidden] kept, else [n, hidden]
  float* attention_post_rstd = nullptr;     // [t]
  void* feed_forward_branch = nullptr;      // T [t, hidden] kept, else [n, hidden]
  float* feed_forward_post_rstd = nullptr;  // [t]
  // Kept at kEverything.
  void* attention_normed = nullptr;     // T [t, hidden] kept, else [n, hidden]
  void* feed_forward_normed = nullptr;  // as attention_normed; shares its memory if not kept
  PerLayerActivations per_layer;
  // Never kept.
  void* activated = nullptr;  // T [n, intermediate]
  // T [n, hidden]: the gradient of one residual branch (residual_branch.h) at a time; null if no
  // branch has a norm.
  void* branch_gradient = nullptr;
};

// Device memory that the backward pass needs besides the activations.
struct LayerBackwardScratch {
  void* dmixed = nullptr;  // T [t, mixed_width]
  // T [t, projected_width]. Behind these rows is room for the gradients of keys and values that
  // have no columns in them: those of softmax attention whose values are its keys, or that has no
  // keys of its own. Rows and room together have t * projected_gradient_width elements.
  void* dprojected = nullptr;
  void* dper_layer = nullptr;  // T [t, PerLayerInputDescription::width]; may be dprojected
  // T: the gradients of queries, keys and values, one after another. Together they have t *
  // expanded_gradient_width elements; null if that is 0 in all layers.
  void* dexpanded = nullptr;
  // Has AttentionWorkspaceBytes bytes (decoder_layer.h). It may be the memory of a chunk's
  // activations, which are not in use during the backward pass of attention or the delta net.
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

// Returns the tokens of a layer's chunks for micro-batches of at most `tokens`: all of them up to
// 16,384, else parts that are as even as steps of 512 allow. The result depends on `tokens` alone,
// so that the bits do not depend on what is kept or on free memory.
//
// Each chunk reads and writes the FP32 sums of every weight gradient: 8 bytes an element for 2 *
// 16,384 operations, or 4,096 operations a byte. An H200 does about 175 in the time of a byte (700
// TFLOP/s over 4 TB/s), an H100 255. So in full chunks the sums add about 4% and 6% to the products
// that compute weight gradients, a third of a layer's products. A chunk takes (3 intermediate + 2
// hidden) elements a token: 2.1 GB for Qwen2.5-7B in BF16.
constexpr int64_t LayerChunkTokens(int64_t tokens) {
  constexpr int64_t kMax = 16384, kStep = 512;
  if (tokens <= kMax) return tokens;
  const int64_t chunks = (tokens + kMax - 1) / kMax;
  return (tokens + chunks * kStep - 1) / (chunks * kStep) * kStep;
}

// Returns the bytes of a block that suffices for the kept tensors of a micro-batch in any one of
// the layers; 0 at kNothing.
int64_t KeptBytes(const ModelDescription& model, DType dtype, int64_t tokens, KeepLevel level);
// Return the bytes that suffice, at any level and for any one of the layers, for the tensors that
// are not kept: those of all tokens (scratch) and those of one chunk.
int64_t LayerScratchBytes(const ModelDescription& model, DType dtype, int64_t tokens);
int64_t LayerChunkBytes(const ModelDescription& model, DType dtype, int64_t chunk_tokens);

// Places the tensors: those that `level` keeps in `kept` (KeptBytes; may be null at kNothing), the
// others in `scratch` (LayerScratchBytes) and `chunk` (LayerChunkBytes). The result points into
// these blocks, which are aligned to TensorCursor::kAlignment. `tokens_max` fixes the offsets, so
// that smaller micro-batches fit too.
LayerActivations PlaceActivations(const ModelDescription& model, int layer, DType dtype,
                                  int64_t tokens_max, int64_t chunk_tokens, KeepLevel level,
                                  void* kept, void* scratch, void* chunk);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_ACTIVATIONS_H_

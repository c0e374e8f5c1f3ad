// What one decoder layer computes for one micro-batch on its way forward, and how much of it is
// kept for backward.
//
// Three levels: kNothing keeps the layer's input only; kCheapRecomputed keeps what costs a matrix
// product or attention and recomputes norms' outputs, SwiGLU and (Qwen3) the rotated queries and
// keys; kEverything keeps all.
#ifndef MEGATRAIN_ENGINE_MODEL_ACTIVATIONS_H_
#define MEGATRAIN_ENGINE_MODEL_ACTIVATIONS_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/model_config.h"

namespace megatrain {

enum class KeepLevel { kNothing, kCheapRecomputed, kEverything };

// Device pointers; T is the activation dtype, t the tokens of the micro-batch.
struct LayerActivations {
  // Kept from kCheapRecomputed on.
  float* input_rstd = nullptr;  // [t]
  void* qkv = nullptr;        // T [t, heads + 2 kv_heads, head_dim]; q and k rotated unless qk_norm
  float* qk_rstd = nullptr;   // [t, heads] then [t, kv_heads]; qk_norm only
  float* lse = nullptr;       // [heads, t]
  void* attention = nullptr;  // T [t, heads, head_dim]
  void* middle = nullptr;     // T [t, hidden]: the residual stream between attention and MLP
  float* post_rstd = nullptr;  // [t]
  void* gate_up = nullptr;     // T [t, 2, intermediate]
  // Kept at kEverything.
  void* input_normed = nullptr;  // T [t, hidden]
  void* qk_rotated = nullptr;    // T [t, heads + kv_heads, head_dim]; qk_norm only
  void* post_normed = nullptr;   // T [t, hidden]
  void* activated = nullptr;     // T [t, intermediate]
};

// Bytes of the block that holds the kept tensors of one layer and micro-batch of `tokens` tokens.
int64_t KeptBytes(const ModelConfig& config, DType dtype, int64_t tokens, KeepLevel level);

// Lays the tensors out: those that `level` keeps in `kept` (KeptBytes long; may be null at
// kNothing), the others in `scratch` (KeptBytes(kEverything) long). `tokens_max` fixes the offsets,
// so that a smaller micro-batch fits too.
LayerActivations PlaceActivations(const ModelConfig& config, DType dtype, int64_t tokens_max,
                                  KeepLevel level, void* kept, void* scratch);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_ACTIVATIONS_H_

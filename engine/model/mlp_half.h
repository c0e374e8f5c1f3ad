// The second half of a decoder layer: norm, gate and up projection, SwiGLU, down projection.
// Stateless functions; each does one chunk's rows.
#ifndef MEGATRAIN_ENGINE_MODEL_MLP_HALF_H_
#define MEGATRAIN_ENGINE_MODEL_MLP_HALF_H_

#include "absl/status/status.h"
#include "engine/model/bound_layer.h"

namespace megatrain {

// y = middle + mlp(norm(middle)). `y` [all tokens, hidden].
absl::Status MlpForward(const BoundLayer& l, const Chunk& chunk, void* y);

// Makes again what MlpBackward reads and was not kept. REQUIRES: the chunk's Middle is there.
absl::Status RecomputeMlp(const BoundLayer& l, const Chunk& chunk);

// Adds the half's gradient to `dh`, the chunk's rows. Each activation is dead once the weight
// gradient that it is an input of is summed, so its gradient takes its place.
absl::Status MlpBackward(const BoundLayer& l, const Chunk& chunk, void* dh,
                         const TileGradient& gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_MLP_HALF_H_

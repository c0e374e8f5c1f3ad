// The gates of a chunk of the delta net: scalars of a value head's tokens.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATES_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATES_H_

#include <cstddef>
#include <cstdint>

#include "engine/device/delta_args.h"

namespace megatrain {

// G_i is the sum of the logarithms of decays from the chunk's first token to token i. Decays may
// differ by orders of magnitude between tokens, so that differences of G need more digits than FP32
// has. So G_i is kept as high[i] + low[i].
struct ChunkGates {
  size_t rows = 0;
  float beta[kDeltaChunk];
  float log_decay[kDeltaChunk];
  float slope[kDeltaChunk];  // the derivative of log_decay by a
  float high[kDeltaChunk], low[kDeltaChunk];
  float since_start[kDeltaChunk];  // exp(G_i)
  float until_end[kDeltaChunk];    // exp(G_last - G_i)

  // Returns exp(G_last), the decay over the whole chunk.
  float whole() const { return since_start[rows - 1]; }
};

// Computes the gates of `rows` tokens of a value head, from token `first` on. REQUIRES: 1 <= rows
// <= kDeltaChunk.
void LoadGates(const GatedDeltaArgs& args, int64_t head, int64_t first, size_t rows,
               ChunkGates* gates);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATES_H_

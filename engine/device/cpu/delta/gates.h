// The gates of a chunk of the gated delta rule: the decay and beta (GatedDeltaArgs) of each token
// of a value head, and values derived from them.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATES_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATES_H_

#include <cstddef>
#include <cstdint>

#include "engine/device/delta_args.h"

namespace megatrain {

// The gates of a chunk's tokens, of which there are `rows`. G_i is the sum of log_decay from the
// chunk's first token to token i. Decays may differ by orders of magnitude between tokens, so that
// differences of G need more digits than FP32 has. Therefore G_i is kept as high[i] + low[i].
struct ChunkGates {
  size_t rows = 0;
  float beta[kDeltaChunk];
  float log_decay[kDeltaChunk];  // the logarithm of decay
  float slope[kDeltaChunk];      // the derivative of log_decay by a
  float high[kDeltaChunk], low[kDeltaChunk];
  float since_start[kDeltaChunk];  // exp(G_i)
  float until_end[kDeltaChunk];    // exp(G_last - G_i)

  // Returns exp(G_last), the decay over the whole chunk.
  float whole() const { return since_start[rows - 1]; }
};

// Computes the gates of `rows` tokens of value head `head`, from token `first` on. The elements of
// `gates` from `rows` on are not written. REQUIRES: 1 <= rows <= kDeltaChunk.
void LoadGates(const GatedDeltaArgs& args, int64_t head, int64_t first, size_t rows,
               ChunkGates* gates);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATES_H_

// The unit of a layer with experts that every token goes through, and its gate. Its result is
// sigmoid(w n) * unit(n) with n = r.normed; without a gate it is unit(n). A gate is a router that
// has one expert, so that its weights, gradients and rows come from the kernels of routers. The
// router's tile is bound in `l`. Each function queues work on the stream of `l` and returns the
// errors of its kernels.
#ifndef MEGATRAIN_ENGINE_MODEL_EXPERTS_SHARED_EXPERT_H_
#define MEGATRAIN_ENGINE_MODEL_EXPERTS_SHARED_EXPERT_H_

#include "absl/status/status.h"
#include "engine/model/experts/expert_memory.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

// Sets r.shared.choice to 0, and writes the rows of r.shared: all tokens in their order. REQUIRES:
// the unit has a gate, here and in GateShared.
absl::Status NumberSharedRows(const BoundLayer& l, const RoutedTokens& r);
// Computes r.shared.weights of the chunk. Overwrites s.logits. REQUIRES: NumberSharedRows.
absl::Status GateShared(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                        const RoutedTokens& r);

// Writes the unit's results of the chunk to r.sum; those of a gated unit are added. REQUIRES: with
// a gate, GateShared of the chunk.
absl::Status SharedForward(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                           const RoutedTokens& r);
// Adds the gradient by the chunk's rows of r.normed to r.sum, and the weight gradients to
// `gradient`. `dy` has the chunk's rows of the gradient by the results. With a gate it writes
// r.shared.dweights and overwrites s.logits. REQUIRES: as SharedForward.
absl::Status SharedBackward(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                            const RoutedTokens& r, const void* dy, const TileGradient& gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_EXPERTS_SHARED_EXPERT_H_

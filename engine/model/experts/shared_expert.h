// Computes the shared expert of a layer with experts: the unit that every token goes through, and
// its gate. The result is sigmoid(w n) * unit(n) with n = r.normed; without a gate it is unit(n). A
// gate is treated as a router with one expert, so that the kernels of routers compute its weights,
// gradients and rows. The router's tile is bound in `l`. Each function queues work on the stream of
// `l` and returns the errors of its kernels. All but NumberSharedRows overwrite tensors of `s`.
#ifndef MEGATRAIN_ENGINE_MODEL_EXPERTS_SHARED_EXPERT_H_
#define MEGATRAIN_ENGINE_MODEL_EXPERTS_SHARED_EXPERT_H_

#include "absl/status/status.h"
#include "engine/model/experts/expert_memory.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

// Sets r.shared.choice to 0, and writes r.shared.assignments, token_rows and offsets for all tokens
// in their order. REQUIRES, here and in GateShared: the unit has a gate.
absl::Status NumberSharedRows(const BoundLayer& l, const RoutedTokens& r);
// Computes r.shared.weights of the chunk. Overwrites s.logits. REQUIRES: NumberSharedRows.
absl::Status GateShared(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                        const RoutedTokens& r);

// Writes the unit's results for the chunk to r.sum. The results of a gated unit are added to what
// is there. REQUIRES: if there is a gate, GateShared was called for the chunk.
absl::Status SharedForward(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                           const RoutedTokens& r);
// Adds the gradient with respect to the chunk's rows of r.normed to r.sum. The weight gradients go
// to `gradient`. `dy` has the chunk's rows of the gradient with respect to the results. With a gate
// it writes r.shared.dweights and overwrites s.logits. REQUIRES: as SharedForward.
absl::Status SharedBackward(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                            const RoutedTokens& r, const void* dy, const TileGradient& gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_EXPERTS_SHARED_EXPERT_H_

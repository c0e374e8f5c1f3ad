// Computes the second half of a layer with experts: norm, router, a unit that all tokens share, the
// experts, and the sum of their results, y = x + sum. Where there is a dense unit beside them,
// expert_join.h has the end. The experts' weights come in several tiles (TileKind::kExperts), and
// all micro-batches of a sweep go through one tile before the next. What a micro-batch has
// meanwhile is its RoutedTokens.
//
//   forward:  RouteTokens, ExpertsForward of each tile in order, FinishExperts
//   backward: RouteTokens, ExpertsBackward of each tile in order, RouterBackward
//
// The backward pass routes again from the same x with the same bits, so that nothing is kept. Each
// function queues work on the context's stream and returns the errors of its kernels. `weights` and
// context.tile are those of the router's tile in RouteTokens and RouterBackward, and of one of the
// experts' in ExpertsForward and ExpertsBackward.
#ifndef MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_HALF_H_
#define MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_HALF_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/experts/expert_memory.h"
#include "engine/model/layer/layer_context.h"

namespace megatrain {

// What RouteTokens computes besides the routing (for engine/pipeline/router_totals.h):
// r.entropy_sum and r.probability.
enum class RoutingTotals { kNone, kEntropy, kEntropyAndProbability };

// Routes the tokens of x [tokens, hidden]. Sets r.sum to what the shared unit returns, or to 0 in a
// `backward` pass or without such a unit. The caller then sets r.offsets.
absl::Status RouteTokens(const LayerContext& context, const void* weights,
                         const MicroBatchView& batch, const void* x, const ExpertScratch& scratch,
                         const RoutedTokens& r, bool backward, RoutingTotals totals);

// Adds to r.sum what the tile's experts return.
absl::Status ExpertsForward(const LayerContext& context, const void* weights,
                            const MicroBatchView& batch, const ExpertScratch& scratch,
                            const RoutedTokens& r);

// y = x + r.sum
absl::Status FinishExperts(const LayerContext& context, const MicroBatchView& batch, const void* x,
                           const RoutedTokens& r, void* y);

// `dy` [tokens, hidden] is the gradient by y, or r.dsum with a JoinDescription. Adds the gradient
// by r.normed to r.sum and writes r.dweights of the tile's experts. Weight gradients are added to
// `gradient` (FP32, in the tile's layout; null if all of the tile is frozen). With `first` they
// replace its content, also those of experts without rows; padding is not written.
absl::Status ExpertsBackward(const LayerContext& context, const void* weights,
                             const MicroBatchView& batch, const ExpertScratch& scratch,
                             const RoutedTokens& r, const void* dy, float* gradient, bool first);

// `dh` [tokens, hidden] has the gradient by y, or the result of JoinBackward, on entry and that by
// x on return. `gradient`, `first` and `input_gradient` are as in DecoderLayerBackward. Overwrites
// r.normed. `dprobabilities` is that of RouteBackwardArgs.
absl::Status RouterBackward(const LayerContext& context, const void* weights,
                            const MicroBatchView& batch, const void* x,
                            const ExpertScratch& scratch, const RoutedTokens& r, void* dh,
                            const float* dprobabilities, float* gradient, bool first,
                            bool input_gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_HALF_H_

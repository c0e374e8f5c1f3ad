// Computes the second half of a layer with experts: norm, router, a unit that all tokens share, the
// experts, and the sum of their results, y = x + sum. If there is a dense unit beside the experts,
// expert_join.h computes the end instead. The experts' weights come in several tiles
// (TileKind::kExperts), and all micro-batches of a sweep go through one tile before the next.
// Between tiles, a micro-batch's intermediate results are in its RoutedTokens.
//
//   forward:  RouteTokens, ExpertsForward of each tile in order, FinishExperts
//   backward: RouteTokens, ExpertsBackward of each tile in order, RouterBackward
//
// The backward pass routes again from the same x with the same bits, so that nothing is kept. Each
// function queues work on the context's stream and returns the errors of its kernels. Memory must
// stay valid until that work is done. x, y, dy and dh are [tokens, hidden] of context.dtype.
// `weights` and context.tile are those of the router's tile in RouteTokens and RouterBackward, and
// of one of the experts' in ExpertsForward and ExpertsBackward.
#ifndef MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_HALF_H_
#define MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_HALF_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/experts/expert_memory.h"
#include "engine/model/layer/layer_context.h"

namespace megatrain {

// The sums that RouteTokens computes besides the routing, for engine/pipeline/router_totals.h. They
// leave out padding, whose r.entropy becomes 0.
enum class RoutingTotals {
  kNone,
  kEntropy,                // r.entropy and r.entropy_sum
  kEntropyAndProbability,  // r.probability too
};

// Routes the tokens of x. Writes all device memory of `r` except dweights, dsum, dprobabilities,
// shared.dweights and what `totals` leaves out. r.sum becomes the result of the shared unit, or 0
// in a `backward` pass or without such a unit.
//
// ExpertsForward and ExpertsBackward read r.offsets. Before it calls them, the caller waits for the
// work queued here, copies r.device_offsets to the host and sets r.offsets to the copy.
absl::Status RouteTokens(const LayerContext& context, const void* weights,
                         const MicroBatchView& batch, const void* x, const ExpertScratch& scratch,
                         const RoutedTokens& r, bool backward, RoutingTotals totals);

// Adds the results of the tile's experts to r.sum. REQUIRES: RouteTokens, and r.offsets is set.
absl::Status ExpertsForward(const LayerContext& context, const void* weights,
                            const MicroBatchView& batch, const ExpertScratch& scratch,
                            const RoutedTokens& r);

// Computes y = x + r.sum. y may be x. REQUIRES: ExpertsForward of all tiles, and the layer does not
// join.
absl::Status FinishExperts(const LayerContext& context, const MicroBatchView& batch, const void* x,
                           const RoutedTokens& r, void* y);

// Computes the backward pass of the tile's experts. `dy` is the gradient with respect to y, or
// r.dsum with a JoinDescription. Adds the gradient with respect to r.normed to r.sum and writes
// r.dweights of the tile's experts. Weight gradients are added to `gradient` (FP32, in the tile's
// layout; null if all of the tile is frozen). With `first` they replace its content, and those of
// experts without rows become 0. Padding and frozen tensors are not written.
absl::Status ExpertsBackward(const LayerContext& context, const void* weights,
                             const MicroBatchView& batch, const ExpertScratch& scratch,
                             const RoutedTokens& r, const void* dy, float* gradient, bool first);

// Computes the backward pass of the router, the shared unit and the norm. `dh` has the gradient
// with respect to y, or the result of JoinBackward, on entry and that with respect to x on return.
// `gradient`, `first` and `input_gradient` are as in DecoderLayerBackward. `dprobabilities` is that
// of RouteBackwardArgs for tokens that are not padding, on the device, or null. Overwrites r.normed
// and r.sum. REQUIRES: ExpertsBackward of all tiles.
absl::Status RouterBackward(const LayerContext& context, const void* weights,
                            const MicroBatchView& batch, const void* x,
                            const ExpertScratch& scratch, const RoutedTokens& r, void* dh,
                            const float* dprobabilities, float* gradient, bool first,
                            bool input_gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_HALF_H_

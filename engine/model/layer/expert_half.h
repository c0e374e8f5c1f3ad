// Computes the second half of a layer with experts: norm, router, a unit that all tokens share, the
// experts, and the sum of their results, y = x + sum. The experts' weights come in several tiles
// (StageKind::kExperts), and all micro-batches of a sweep go through one tile before the next. What
// a micro-batch has meanwhile is its RoutedTokens.
//
//   forward:  RouteTokens, ExpertsForward of each tile in order, FinishExperts
//   backward: RouteTokens, ExpertsBackward of each tile in order, RouterBackward
//
// The backward pass routes again from the same x with the same bits, so that nothing is kept. Each
// function queues work on the context's stream and returns the errors of its kernels. `weights` and
// context.tile are those of the router's tile in RouteTokens and RouterBackward, and of one of the
// experts' in ExpertsForward and ExpertsBackward.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_EXPERT_HALF_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_EXPERT_HALF_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/layer/activations.h"
#include "engine/model/layer/layer_context.h"

namespace megatrain {

// The tokens of one micro-batch on their way through the experts of a layer. t tokens, k experts
// chosen for each, E experts. Device memory except for `offsets`.
struct RoutedTokens {
  void* normed = nullptr;  // T [t, hidden], the experts' input
  float* rstd = nullptr;   // [t]
  // [t, hidden]: in forward the sum of what a token's experts return, in backward that of the
  // gradients by `normed`.
  float* sum = nullptr;
  int32_t* choice = nullptr;  // [t, k], as in RouteArgs
  float* weights = nullptr;   // [t, k], as in RouteArgs
  float* dweights = nullptr;  // [t, k], as in RouteBackwardArgs
  float* entropy = nullptr;   // [t], as in RouteArgs
  // The sums over tokens of the entropy, and by expert of softmax(logits). FP64.
  double* entropy_sum = nullptr;
  double* probability = nullptr;      // [E]
  float* dprobabilities = nullptr;    // [E], as in RouteBackwardArgs; the caller's
  int32_t* assignments = nullptr;     // [t k], as in SortAssignmentsArgs
  int32_t* token_rows = nullptr;      // [t, k], as in SortAssignmentsArgs
  int32_t* device_offsets = nullptr;  // [E + 1], as in SortAssignmentsArgs
  // HOST memory: a copy of device_offsets that the caller makes between RouteTokens and the
  // experts.
  const int32_t* offsets = nullptr;
};
// Returns the bytes of a block that suffices for any layer of the model; 0 without experts.
int64_t RoutedBytes(const ModelDescription& model, DType dtype, int64_t tokens);
RoutedTokens PlaceRouted(const ModelDescription& model, DType dtype, int64_t tokens, void* block);

// Memory that the functions below use in turn. T is the activation dtype, n the tokens of a chunk
// (LayerChunkTokens) and the most rows that experts take at a time, besides the rows that fill up a
// product (LayerContext::whole_rows).
struct ExpertScratch {
  float* logits = nullptr;  // [n, E]
  void* dlogits = nullptr;  // T [n, E]
  // The shared unit's, then the experts'.
  void* gate_up = nullptr;     // T [n, 2, intermediate]
  void* activated = nullptr;   // T [n, intermediate]
  void* dactivated = nullptr;  // T [n, intermediate]
  void* in = nullptr;          // T [n, hidden], the rows of experts
  void* out = nullptr;         // T [n, hidden]
};
// Returns the bytes of a block that suffices for any layer of the model; 0 without experts.
int64_t ExpertScratchBytes(const ModelDescription& model, DType dtype, int64_t chunk_tokens);
ExpertScratch PlaceExpertScratch(const ModelDescription& model, DType dtype, int64_t chunk_tokens,
                                 void* block);

// What RouteTokens computes for RouterTotals besides the routing: r.entropy_sum, and r.probability.
enum class RoutingTotals { kNone, kEntropy, kEntropyAndProbability };

// Routes the tokens of x [tokens, hidden], and sets r.sum to what the shared unit returns, or to 0
// in a `backward` pass and without such a unit.
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

// `dy` [tokens, hidden] is the gradient by y. Adds the gradient by `normed` to r.sum and writes
// r.dweights of the tile's experts. Weight gradients are added to `gradient` (FP32, in the tile's
// layout; null if all of the tile is frozen).
absl::Status ExpertsBackward(const LayerContext& context, const void* weights,
                             const MicroBatchView& batch, const ExpertScratch& scratch,
                             const RoutedTokens& r, const void* dy, float* gradient);

// `dh` [tokens, hidden] has the gradient by y on entry and by x on return; weight gradients go to
// `gradient` as in DecoderLayerBackward. Overwrites r.normed. `dprobabilities` is that of
// RouteBackwardArgs.
absl::Status RouterBackward(const LayerContext& context, const void* weights,
                            const MicroBatchView& batch, const void* x,
                            const ExpertScratch& scratch, const RoutedTokens& r, void* dh,
                            const float* dprobabilities, float* gradient, bool first,
                            bool input_gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_EXPERT_HALF_H_

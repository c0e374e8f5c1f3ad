// Computes the end of a half of a layer with a dense unit beside the experts (JoinDescription): the
// dense unit, the norms of both results and of their sum, and the residual connection
//   y = scale * (x + post_norm(dense_post_norm(mlp(norm(x))) + experts_post_norm(sum))),
// where `sum` is the sum of the experts' results (expert_half.h), and `scale` is the layer_scalar
// if the layer has an output_scale, else 1. The weights have a tile of their own (TileKind::kJoin),
// to which `weights` points and which context.tile names. The functions queue work on the context's
// stream and return the errors of its kernels. Memory must stay valid until that work is done.
//
//   forward:  RouteTokens, ExpertsForward of each tile, JoinForward
//   backward: RouteTokens, ExpertsForward of each tile, JoinBackward, ExpertsBackward of each tile,
//             RouterBackward
//
// The norms' gradients need the sum. The backward pass computes it again, which costs one more load
// of the experts' tiles. Keeping the sum would take as much memory in each layer as one more
// boundary of hidden states.
#ifndef MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_JOIN_H_
#define MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_JOIN_H_

#include "absl/status/status.h"
#include "engine/model/experts/expert_memory.h"
#include "engine/model/layer/layer_context.h"

namespace megatrain {

// Computes y from x, both [tokens, hidden] of context.dtype, and r.sum. y may be x.
absl::Status JoinForward(const LayerContext& context, const void* weights,
                         const MicroBatchView& batch, const void* x, const ExpertScratch& scratch,
                         const RoutedTokens& r, void* y);

// Computes the backward pass. `dh`, of the shape and type of y, has the gradient with respect to y
// on entry. On return it has that with respect to x, without the part that comes through the
// experts. Writes r.dsum, and sets r.sum to 0 for ExpertsBackward. `gradient`, `first` and
// `input_gradient` are as in DecoderLayerBackward.
absl::Status JoinBackward(const LayerContext& context, const void* weights,
                          const MicroBatchView& batch, const void* x, const ExpertScratch& scratch,
                          const RoutedTokens& r, void* dh, float* gradient, bool first,
                          bool input_gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_JOIN_H_

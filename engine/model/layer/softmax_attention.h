// SoftmaxAttention is causal softmax attention inside documents. A row of a.projected, where `a` is
// BoundLayer::a, has queries, gates, keys and values. Heads are normed and rotated before
// attention, and the result of attention is gated. The AttentionDescription says which of these
// parts, norms, rotations and gates there are. Keys and values may be those of an earlier layer
// (shared_rows.h).
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_SOFTMAX_ATTENTION_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_SOFTMAX_ATTENTION_H_

#include "engine/model/layer/attention_part.h"

namespace megatrain {

class SoftmaxAttention final : public AttentionPart {
 public:
  absl::Status Prepare(const BoundLayer& l, const Chunk& chunk) const override;
  absl::Status Mix(const BoundLayer& l) const override;
  absl::Status Recompute(const BoundLayer& l) const override;
  bool Trains(const BoundLayer& l) const override;
  absl::Status MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                           const TileGradient& gradient) const override;
  absl::Status PrepareBackward(const BoundLayer& l, const Chunk& chunk,
                               const LayerBackwardScratch& scratch,
                               const TileGradient& gradient) const override;
  void Announce(const BoundLayer& l, const LayerBackwardScratch& scratch) const override;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_SOFTMAX_ATTENTION_H_

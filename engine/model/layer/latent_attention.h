// LatentAttention is multi-head latent attention (LatentDescription). A row of a.projected, where
// `a` is BoundLayer::a, has three parts: the latent of queries (queries themselves if there is
// none), the latent of keys and values, and the end of keys, which all heads share and which is not
// rotated yet. Prepare norms the latents, expands them to heads and rotates the ends. Mix is causal
// attention inside documents. With the normed latents c_q and c_kv, for a head h:
//   q_h = [W_q_h c_q with its end rotated],  k_h = [W_k_h c_kv | rotated end],  v_h = W_v_h c_kv.
// A cache holds the expanded keys and values.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_LATENT_ATTENTION_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_LATENT_ATTENTION_H_

#include "engine/model/layer/attention_part.h"

namespace megatrain {

class LatentAttention final : public AttentionPart {
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

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_LATENT_ATTENTION_H_

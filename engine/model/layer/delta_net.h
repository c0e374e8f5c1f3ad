// DeltaNet is a gated delta net (DeltaNetDescription). A row of a.projected, where `a` is
// BoundLayer::a, has queries, keys and values, then the gates z and the inputs b and a of the delta
// rule. A causal convolution is applied to queries, keys and values. The gated delta rule inside
// documents follows. Each head of its result is then normed and gated by z. The kernels are those
// of engine/device/delta_args.h.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_DELTA_NET_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_DELTA_NET_H_

#include "engine/model/layer/attention_part.h"

namespace megatrain {

class DeltaNet final : public AttentionPart {
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
  int64_t WorkspaceBytes(const LayerDescription& layer, DType dtype, int64_t tokens,
                         int64_t sequence, const KernelSizes& sizes) const override;
  int64_t CacheBytes(const LayerDescription& layer, DType dtype,
                     const CacheSize& size) const override;
  void Announce(const BoundLayer& l, const LayerBackwardScratch& scratch) const override;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_DELTA_NET_H_

#include "engine/model/layer/attention_part.h"

#include "engine/model/layer/delta_net.h"
#include "engine/model/layer/softmax_attention.h"

namespace megatrain {

const AttentionPart& PartOf(const LayerDescription& layer) {
  static constexpr SoftmaxAttention kSoftmax;
  static constexpr DeltaNet kDeltaNet;
  switch (layer.attention_kind()) {
    case AttentionKind::kSoftmax:
      break;
    case AttentionKind::kDeltaNet:
      return kDeltaNet;
  }
  return kSoftmax;
}

}  // namespace megatrain

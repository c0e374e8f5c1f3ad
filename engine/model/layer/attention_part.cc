#include "engine/model/layer/attention_part.h"

#include "engine/model/layer/latent_attention.h"
#include "engine/model/layer/softmax_attention.h"

namespace megatrain {

const AttentionPart& PartOf(const LayerDescription& layer) {
  static constexpr SoftmaxAttention kSoftmax;
  static constexpr LatentAttention kLatent;
  switch (layer.attention_kind()) {
    case AttentionKind::kSoftmax:
      break;
    case AttentionKind::kLatent:
      return kLatent;
  }
  return kSoftmax;
}

}  // namespace megatrain

#include "engine/model/layer/attention_part.h"

#include "engine/model/layer/softmax_attention.h"

namespace megatrain {

const AttentionPart& PartOf(const LayerDescription& layer) {
  static constexpr SoftmaxAttention kSoftmax;
  switch (layer.attention_kind()) {
    case AttentionKind::kSoftmax:
      break;
  }
  return kSoftmax;
}

}  // namespace megatrain

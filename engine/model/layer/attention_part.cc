#include "engine/model/layer/attention_part.h"

#include "engine/model/layer/delta_net.h"
#include "engine/model/layer/latent_attention.h"
#include "engine/model/layer/softmax_attention.h"

namespace megatrain {

int64_t AttentionPart::WorkspaceBytes(const LayerDescription& layer, DType dtype, int64_t tokens,
                                      int64_t sequence, const KernelSizes& sizes) const {
  const AttentionDescription& a = layer.attention;
  return sizes.AttentionBackwardWorkspaceBytes({.dtype = dtype,
                                                .tokens = tokens,
                                                .sequence = sequence,
                                                .heads = a.heads,
                                                .kv_heads = a.kv_heads,
                                                .head_dim = a.head_dim,
                                                .value_dim = a.value_dim(),
                                                .window = a.window,
                                                .softcap = static_cast<float>(a.softcap),
                                                .sinks = a.sinks});
}

int64_t AttentionPart::CacheBytes(const LayerDescription& layer, DType dtype,
                                  const CacheSize& size) const {
  const AttentionDescription& a = layer.attention;
  return a.projects_keys ? size.rows * a.cache_width() * DTypeBytes(dtype) : 0;
}

const AttentionPart& PartOf(const LayerDescription& layer) {
  static constexpr SoftmaxAttention kSoftmax;
  static constexpr LatentAttention kLatent;
  static constexpr DeltaNet kDeltaNet;
  switch (layer.attention_kind()) {
    case AttentionKind::kSoftmax:
      break;
    case AttentionKind::kLatent:
      return kLatent;
    case AttentionKind::kDeltaNet:
      return kDeltaNet;
  }
  return kSoftmax;
}

}  // namespace megatrain

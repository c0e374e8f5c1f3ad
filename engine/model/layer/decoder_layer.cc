#include "engine/model/layer/decoder_layer.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/device/device.h"
#include "engine/model/layer/attention_half.h"
#include "engine/model/layer/attention_part.h"
#include "engine/model/layer/bound_layer.h"
#include "engine/model/layer/mlp_half.h"
#include "engine/model/layer/per_layer_input.h"

namespace megatrain {

int64_t AttentionWorkspaceBytes(const ModelDescription& model, DType dtype, int64_t tokens,
                                int64_t sequence, const KernelSizes& sizes) {
  int64_t bytes = 0;
  for (const int index : LayersOfDifferentAttention(model)) {
    const LayerDescription& layer = model.layers[static_cast<size_t>(index)];
    bytes = std::max(bytes, PartOf(layer).WorkspaceBytes(layer, dtype, tokens, sequence, sizes));
  }
  return bytes;
}

int64_t LayerCacheBytes(const LayerDescription& layer, DType dtype, const CacheSize& size) {
  return PartOf(layer).CacheBytes(layer, dtype, size);
}

LayerBackwardWidths BackwardWidths(const ModelDescription& model) {
  LayerBackwardWidths widths;
  for (const LayerDescription& layer : model.layers) {
    widths.mixed = std::max(widths.mixed, layer.mixed_width());
    widths.projected =
        std::max({widths.projected, layer.projected_gradient_width(), layer.per_layer_input.width});
    widths.expanded = std::max(widths.expanded, layer.expanded_gradient_width());
  }
  return widths;
}

void PrepareDecoderLayer(const LayerContext& context, const MicroBatchView& batch,
                         int64_t workspace_bytes) {
  Stream none;
  LayerContext unqueued = context;
  unqueued.stream = &none;
  // Addresses are reckoned with, not looked at.
  alignas(16) char anywhere = 0;
  LayerActivations activations;
  activations.projected = activations.softmax.qk_rotated = &anywhere;
  activations.latent.queries = activations.latent.keys = activations.latent.values = &anywhere;
  LayerBackwardScratch scratch;
  scratch.dprojected = scratch.dexpanded = &anywhere;
  scratch.workspace_bytes = workspace_bytes;
  const BoundLayer layer(unqueued, &anywhere, batch, activations);
  PartOf(layer.d).Announce(layer, scratch);
}

absl::Status DecoderLayerForward(const LayerContext& context, const void* weights,
                                 const MicroBatchView& batch, const void* x,
                                 const LayerActivations& activations, void* y) {
  const BoundLayer layer(context, weights, batch, activations);
  MT_RETURN_IF_ERROR(AttentionForward(layer, x));
  return layer.ForChunks([&](const Chunk& chunk) {
    MT_RETURN_IF_ERROR(AttentionOutput(layer, chunk, x, layer.Middle(chunk)));
    void* const y_rows = layer.Rows(y, chunk, layer.hidden);
    if (HasPerLayerInput(layer)) {
      void* const stream = layer.keeps_products ? PerLayerStream(layer, chunk) : y_rows;
      MT_RETURN_IF_ERROR(MlpForward(layer, chunk, stream));
      MT_RETURN_IF_ERROR(AddPerLayerInput(layer, chunk, stream, y_rows));
    } else {
      MT_RETURN_IF_ERROR(MlpForward(layer, chunk, y_rows));
    }
    return layer.ScaleOutput(chunk, y_rows);
  });
}

absl::Status AttentionStageForward(const LayerContext& context, const void* weights,
                                   const MicroBatchView& batch, const void* x,
                                   const LayerActivations& activations, void* y) {
  const BoundLayer layer(context, weights, batch, activations);
  MT_RETURN_IF_ERROR(AttentionForward(layer, x));
  return layer.ForChunks([&](const Chunk& chunk) {
    return AttentionOutput(layer, chunk, x, layer.Rows(y, chunk, layer.hidden));
  });
}

absl::Status DecoderLayerBackward(const LayerContext& context, const void* weights,
                                  const MicroBatchView& batch, const void* x,
                                  const LayerActivations& activations,
                                  const LayerBackwardScratch& scratch, void* dh, float* gradient,
                                  bool first, bool input_gradient) {
  const BoundLayer layer(context, weights, batch, activations);
  const bool has_mlp = layer.d.is_dense();
  const auto gradient_of = [&](const Chunk& chunk) {
    return TileGradient{gradient, !(first && chunk.begin == 0), input_gradient};
  };
  const bool into_attention = NeedsAttentionGradient(layer, gradient_of({}));
  MT_RETURN_IF_ERROR(RecomputeAttention(layer, x));
  MT_RETURN_IF_ERROR(layer.ForChunks([&](const Chunk& chunk) {
    void* const dh_rows = layer.Rows(dh, chunk, layer.hidden);
    // For the MLP, or for the norm after attention.
    const bool reads_output = has_mlp || layer.o.attention_post_norm >= 0;
    if (!layer.keeps_products && reads_output) {
      MT_RETURN_IF_ERROR(AttentionOutput(layer, chunk, x, layer.Middle(chunk)));
    }
    if (has_mlp) {
      MT_RETURN_IF_ERROR(layer.ScaleOutput(chunk, dh_rows));
      if (HasPerLayerInput(layer)) {
        MT_RETURN_IF_ERROR(RecomputeMlp(layer, chunk, PerLayerStream(layer, chunk)));
        if (!layer.keeps_products) MT_RETURN_IF_ERROR(RecomputePerLayerInput(layer, chunk));
        MT_RETURN_IF_ERROR(
            PerLayerInputBackward(layer, chunk, dh_rows, scratch, gradient_of(chunk)));
      } else {
        MT_RETURN_IF_ERROR(RecomputeMlp(layer, chunk));
      }
      MT_RETURN_IF_ERROR(MlpBackward(layer, chunk, dh_rows, gradient_of(chunk)));
    }
    return AttentionOutputBackward(layer, chunk, dh_rows, scratch, gradient_of(chunk));
  }));
  if (HasPerLayerInput(layer)) {
    MT_RETURN_IF_ERROR(PerLayerTableBackward(layer, scratch, gradient_of({})));
  }
  if (!into_attention) return absl::OkStatus();
  MT_RETURN_IF_ERROR(MixBackward(layer, scratch, gradient_of({})));
  MT_RETURN_IF_ERROR(layer.ForChunks([&](const Chunk& chunk) {
    return AttentionInputBackward(layer, chunk, x, scratch, dh, gradient_of(chunk));
  }));
  const bool adds_embedding = HasPerLayerInput(layer) && context.layer == 0 && input_gradient;
  return adds_embedding ? AddEmbeddingGradient(layer, dh) : absl::OkStatus();
}

}  // namespace megatrain

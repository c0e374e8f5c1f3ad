// StepBuilder's forward pass.
#include "engine/pipeline/step_builder.h"

namespace megatrain {

void StepBuilder::Forward(bool train) {
  const bool stash = train && shape_.stash_on_host;
  EmbedForward(train);
  for (int layer = 0; layer < shape_.layers; ++layer) {
    const int buffer = Use();
    Prefetch();
    // The largest partial sum comes bit by bit between the layers' weights.
    if (train) LoadPartial(shape_.head_tile(), accumulator_of_head_, layer, shape_.layers);
    for (int i = 0; i < sweep_size_; ++i) {
      const LayerForwardOp forward{.layer = layer,
                                   .micro_batch = MicroBatch(i),
                                   .weight_buffer = buffer,
                                   .input_slot = ForwardSlot(layer, i),
                                   .output_slot = ForwardSlot(layer + 1, i),
                                   .kept = train ? Kept(layer, i) : std::nullopt,
                                   .cache = cache_};
      Op& op = Add(Lane::kCompute, forward);
      op.work = Part(i) * shape_.work.layer(layer).forward;
      op.reads = {{ResourceKind::kWeightBuffer, buffer},
                  {ResourceKind::kHidden, forward.input_slot},
                  {ResourceKind::kDeviceBatch, slot_}};
      if (layer == 0 && shape_.first_tile_in_buffer()) {
        op.reads.push_back({ResourceKind::kFirstTile});
      }
      op.writes = {{ResourceKind::kHidden, forward.output_slot}, {ResourceKind::kScratch}};
      if (cache_ != CacheUse::kNone) op.writes.push_back({ResourceKind::kCache, layer});
      if (forward.kept) op.writes.push_back({ResourceKind::kKept, forward.kept->slot});
      if (stash && layer + 1 < shape_.layers) StoreStash(layer + 1, i);
    }
    EndUse();
  }
}

void StepBuilder::EmbedForward(bool train) {
  std::optional<int> buffer;
  if (!shape_.embedding_from_host) {
    // The embedding is the last tile whose gradient the step before stores: the layers behind it
    // are updated sooner, and must not queue behind it for the link.
    Prefetch();
    buffer = Use();
    Prefetch();
  }
  for (int i = 0; i < sweep_size_; ++i) {
    const int output = ForwardSlot(0, i);
    Op& op = Add(Lane::kCompute,
                 EmbedForwardOp{
                     .micro_batch = MicroBatch(i), .output_slot = output, .weight_buffer = buffer});
    op.work = Part(i) * shape_.work.embed_forward;
    op.reads = {{ResourceKind::kDeviceBatch, slot_}};
    if (!buffer) {
      const bool rows = train && state_.rows_first;
      op.reads.push_back({rows ? ResourceKind::kEmbeddingRows : ResourceKind::kTileWeights, 0});
      op.h2d_bytes = shape_.hidden_bytes_per_token * Tokens(i);
    } else {
      op.reads.push_back({ResourceKind::kWeightBuffer, *buffer});
    }
    op.writes = {{ResourceKind::kHidden, output}};
    if (train && shape_.stash_on_host) StoreStash(0, i);
  }
  if (buffer) EndUse();
}

void StepBuilder::StoreStash(int layer, int i) {
  if (layer < shape_.lowest_layer()) return;
  const int input = ForwardSlot(layer, i);
  Op& op =
      Add(Lane::kD2H,
          StoreStashOp{
              .layer = layer, .micro_batch = MicroBatch(i), .sweep_index = i, .input_slot = input});
  op.bytes = shape_.hidden_bytes_per_token * Tokens(i);
  op.reads = {{ResourceKind::kHidden, input}};
  op.writes = {{ResourceKind::kHostStash, shape_.stash_slot(layer, i)}};
}

}  // namespace megatrain

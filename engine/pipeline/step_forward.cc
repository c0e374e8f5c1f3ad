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
      Op& op = Add(OpKind::kLayerForward, Lane::kCompute);
      AtMicroBatch(op, i);
      op.layer = layer;
      op.tile = layer + 1;
      op.weight_buffer = buffer;
      op.input_slot = ForwardSlot(layer, i);
      op.output_slot = ForwardSlot(layer + 1, i);
      op.work = Part(i) * shape_.work.layer_forward;
      op.reads = {{ResourceKind::kWeightBuffer, buffer},
                  {ResourceKind::kHidden, op.input_slot},
                  {ResourceKind::kDeviceBatch, slot_}};
      if (op.tile == 1 && shape_.first_tile_in_buffer()) {
        op.reads.push_back({ResourceKind::kFirstTile});
      }
      op.writes = {{ResourceKind::kHidden, op.output_slot}, {ResourceKind::kScratch}};
      if (train) Keep(op, layer, i);
      if (op.kept_slot >= 0) op.writes.push_back({ResourceKind::kKept, op.kept_slot});
      if (stash && layer + 1 < shape_.layers) StoreStash(layer + 1, i);
    }
    EndUse();
  }
}

void StepBuilder::EmbedForward(bool train) {
  int buffer = -1;
  if (!shape_.embedding_from_host) {
    // The embedding is the last tile whose gradient the step before stores: the layers behind it
    // are updated sooner, and must not queue behind it for the link.
    Prefetch();
    buffer = Use();
    Prefetch();
  }
  for (int i = 0; i < sweep_size_; ++i) {
    Op& op = Add(OpKind::kEmbedForward, Lane::kCompute);
    AtMicroBatch(op, i);
    op.tile = 0;
    op.weight_buffer = buffer;
    op.output_slot = ForwardSlot(0, i);
    op.work = Part(i) * shape_.work.embed_forward;
    op.reads = {{ResourceKind::kDeviceBatch, slot_}};
    if (shape_.embedding_from_host) {
      const bool rows = train && state_.rows_first;
      op.reads.push_back({rows ? ResourceKind::kEmbeddingRows : ResourceKind::kTileWeights, 0});
      op.h2d_bytes = shape_.hidden_bytes_per_token * Tokens(i);
    } else {
      op.reads.push_back({ResourceKind::kWeightBuffer, buffer});
    }
    op.writes = {{ResourceKind::kHidden, op.output_slot}};
    if (train && shape_.stash_on_host) StoreStash(0, i);
  }
  if (!shape_.embedding_from_host) EndUse();
}

void StepBuilder::StoreStash(int layer, int i) {
  Op& op = Add(OpKind::kStoreStash, Lane::kD2H);
  AtMicroBatch(op, i);
  op.layer = layer;
  op.input_slot = ForwardSlot(layer, i);
  op.stash_slot = shape_.stash_slot(layer, i);
  op.bytes = shape_.hidden_bytes_per_token * Tokens(i);
  op.reads = {{ResourceKind::kHidden, op.input_slot}};
  op.writes = {{ResourceKind::kHostStash, op.stash_slot}};
}

}  // namespace megatrain

// StepBuilder's forward pass.
#include "engine/pipeline/schedule/step_builder.h"

namespace megatrain {

void StepBuilder::Forward(bool train) {
  EmbedForward(train);
  for (int stage = 0; stage < shape_.stage_count(); ++stage) {
    shape_.stages[stage].has_experts() ? ExpertsForward(stage, train) : LayerForward(stage, train);
  }
}

void StepBuilder::LayerForward(int stage, bool train) {
  const int buffer = Use();
  Prefetch();
  // The largest partial sum comes bit by bit between the stages' weights.
  if (train) LoadPartial(shape_.head_tile(), accumulator_of_head_, stage, shape_.stage_count());
  for (int i = 0; i < sweep_size_; ++i) {
    const LayerForwardOp forward{.stage = stage,
                                 .micro_batch = MicroBatch(i),
                                 .weight_buffer = buffer,
                                 .input_slot = ForwardSlot(stage, i),
                                 .output_slot = ForwardSlot(stage + 1, i),
                                 .kept = train ? Kept(stage, i) : std::nullopt,
                                 .cache = cache_};
    Op& op = Add(Lane::kCompute, forward);
    op.work = Part(i) * shape_.work.stage(stage).forward;
    op.reads = {{ResourceKind::kWeightBuffer, buffer},
                {ResourceKind::kHidden, forward.input_slot},
                {ResourceKind::kDeviceBatch, slot_}};
    if (stage == 0 && shape_.first_tile_in_buffer()) {
      op.reads.push_back({ResourceKind::kFirstTileHostPart});
    }
    op.writes = {{ResourceKind::kHidden, forward.output_slot}, {ResourceKind::kScratch}};
    if (cache_ != CacheUse::kNone) op.writes.push_back({ResourceKind::kCache, stage});
    if (forward.kept) op.writes.push_back({ResourceKind::kKept, forward.kept->slot});
    if (train) StoreStash(stage + 1, i);
  }
  EndUse();
}

void StepBuilder::Route(int stage, int buffer, bool backward, bool totals) {
  const StageStepWork& work = shape_.work.stage(stage);
  for (int i = 0; i < sweep_size_; ++i) {
    const RouteOp route{.stage = stage,
                        .micro_batch = MicroBatch(i),
                        .sweep_index = i,
                        .weight_buffer = buffer,
                        .input_slot = backward ? BackwardSlot(stage, i) : ForwardSlot(stage, i),
                        .backward = backward,
                        .totals = totals};
    Op& op = Add(Lane::kCompute, route);
    op.work = Part(i) *
              (backward ? work.recompute[static_cast<size_t>(KeepLevel::kNothing)] : work.forward);
    op.reads = {{ResourceKind::kWeightBuffer, buffer}, {ResourceKind::kHidden, route.input_slot}};
    op.writes = {{ResourceKind::kRouted, i}, {ResourceKind::kScratch}};
  }
}

void StepBuilder::ExpertsForward(int stage, bool train) {
  const StageShape& tiles = shape_.stages[stage];
  {
    const int buffer = Use();
    Prefetch();
    if (train) LoadPartial(shape_.head_tile(), accumulator_of_head_, stage, shape_.stage_count());
    Route(stage, buffer, /*backward=*/false, /*totals=*/train);
    EndUse();
  }
  for (int tile = tiles.tile + 1; tile <= tiles.last_expert_tile(); ++tile) {
    ExpertTileForward(stage, tile, train, /*backward=*/false);
  }
  if (tiles.joins) JoinForward(stage, train);
}

void StepBuilder::ExpertTileForward(int stage, int tile, bool train, bool backward) {
  const int buffer = Use();
  Prefetch();
  for (int i = 0; i < sweep_size_; ++i) {
    const ExpertsForwardOp forward{.stage = stage,
                                   .tile = tile,
                                   .micro_batch = MicroBatch(i),
                                   .sweep_index = i,
                                   .weight_buffer = buffer,
                                   .input_slot = ForwardSlot(stage, i),
                                   .output_slot = ForwardSlot(stage + 1, i),
                                   .last = tile == shape_.stages[stage].last_tile(),
                                   .backward = backward};
    Op& op = Add(Lane::kCompute, forward);
    op.work = Part(i) * shape_.work.stage(stage).experts_forward;
    op.reads = {{ResourceKind::kWeightBuffer, buffer}};
    op.writes = {{ResourceKind::kRouted, i}, {ResourceKind::kScratch}};
    if (!forward.last) continue;
    op.reads.push_back({ResourceKind::kHidden, forward.input_slot});
    op.writes.push_back({ResourceKind::kHidden, forward.output_slot});
    if (train) StoreStash(stage + 1, i);
  }
  EndUse();
}

void StepBuilder::JoinForward(int stage, bool train) {
  const int buffer = Use();
  Prefetch();
  for (int i = 0; i < sweep_size_; ++i) {
    const JoinForwardOp forward{.stage = stage,
                                .micro_batch = MicroBatch(i),
                                .sweep_index = i,
                                .weight_buffer = buffer,
                                .input_slot = ForwardSlot(stage, i),
                                .output_slot = ForwardSlot(stage + 1, i)};
    Op& op = Add(Lane::kCompute, forward);
    op.work = Part(i) * shape_.work.stage(stage).join_forward;
    op.reads = {{ResourceKind::kWeightBuffer, buffer},
                {ResourceKind::kHidden, forward.input_slot},
                {ResourceKind::kRouted, i}};
    op.writes = {{ResourceKind::kHidden, forward.output_slot}, {ResourceKind::kScratch}};
    if (train) StoreStash(stage + 1, i);
  }
  EndUse();
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
    if (train) StoreStash(0, i);
  }
  if (buffer) EndUse();
}

// Stores the input of a stage for its backward pass. The head reads its own at once.
void StepBuilder::StoreStash(int stage, int i) {
  if (!shape_.stash_on_host || stage < shape_.lowest_stage() || stage == shape_.stage_count()) {
    return;
  }
  const int input = ForwardSlot(stage, i);
  Op& op =
      Add(Lane::kD2H,
          StoreStashOp{
              .stage = stage, .micro_batch = MicroBatch(i), .sweep_index = i, .input_slot = input});
  op.bytes = shape_.hidden_bytes_per_token * Tokens(i);
  op.reads = {{ResourceKind::kHidden, input}};
  op.writes = {{ResourceKind::kHostStash, shape_.stash_slot(stage, i)}};
}

}  // namespace megatrain

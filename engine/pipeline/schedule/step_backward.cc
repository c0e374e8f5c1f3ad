// StepBuilder's backward pass: head, layers, embedding, and where their gradients are summed and
// go.
#include <algorithm>
#include <utility>

#include "engine/pipeline/schedule/step_builder.h"

namespace megatrain {

void StepBuilder::Head() {
  const int tile = shape_.head_tile();
  const int buffer = Use();
  Prefetch();
  LoadStashBehind(-1);
  BeginFolds(tile, accumulator_of_head_);
  for (int i = 0; i < sweep_size_; ++i) {
    const FoldPlace place = PlaceOf(accumulator_of_head_, MicroBatch(i));
    const HeadOp head{.tile = tile,
                      .micro_batch = MicroBatch(i),
                      .sweep_index = i,
                      .weight_buffer = buffer,
                      .accumulator = place.accumulator,
                      .input_slot = ForwardSlot(shape_.stage_count(), i),
                      .first = place.first,
                      .input_gradient = shape_.trains_before(shape_.stage_count())};
    Op& op = Add(Lane::kCompute, head);
    op.work = Part(i) * BackwardWork(tile, shape_.work.head, shape_.work.head_weights);
    if (head.first) op.work.device_bytes += shape_.work.head_first_bytes;
    op.reads = {{ResourceKind::kWeightBuffer, buffer},
                {ResourceKind::kHidden, head.input_slot},
                {ResourceKind::kDeviceBatch, slot_}};
    op.writes = {{ResourceKind::kHiddenGradient, i},
                 {ResourceKind::kScratch},
                 {ResourceKind::kDeviceLosses, slot_}};
    if (head.accumulator) op.writes.push_back({ResourceKind::kAccumulator, *head.accumulator});
    EndMicroBatch(tile, accumulator_of_head_, MicroBatch(i));
    LoadStashBehind(BackwardNumber(shape_.stage_count(), i));
  }
  EndUse();
  if (last_sweep()) {
    StoreLosses();
    if (!shape_.clipping) {
      updates_.ShareResults(/*losses=*/true, /*norms=*/false);
      Add(Lane::kUpdate, CheckLossesOp{}).reads = {{ResourceKind::kHostLosses, slot_}};
    }
  }
  // A tied matrix has more to come, from the embedding's end.
  if (!shape_.tied || !shape_.embedding_trained) EndGradient(tile, accumulator_of_head_);
}

void StepBuilder::LayerBackward(int stage) {
  const int tile = shape_.stages[stage].tile;
  const StageStepWork& work = shape_.work.stage(stage);
  const std::optional<int> accumulator = BeginGradient(tile);
  const int buffer = Use();
  Prefetch();
  for (int i = 0; i < sweep_size_; ++i) {
    const FoldPlace place = PlaceOf(accumulator, MicroBatch(i));
    const LayerBackwardOp backward{.stage = stage,
                                   .micro_batch = MicroBatch(i),
                                   .sweep_index = i,
                                   .weight_buffer = buffer,
                                   .accumulator = place.accumulator,
                                   .input_slot = BackwardSlot(stage, i),
                                   .first = place.first,
                                   .kept = Kept(stage, i),
                                   .input_gradient = shape_.trains_before(stage)};
    Op& op = Add(Lane::kCompute, backward);
    const KeepLevel keep = backward.kept ? backward.kept->level : KeepLevel::kNothing;
    op.work = Part(i) * (BackwardWork(tile, work.backward, work.weights) +
                         work.recompute[static_cast<size_t>(keep)]);
    if (backward.first) op.work.device_bytes += work.first_bytes;
    op.reads = {{ResourceKind::kWeightBuffer, buffer},
                {ResourceKind::kHidden, backward.input_slot},
                {ResourceKind::kDeviceBatch, slot_}};
    op.writes = {{ResourceKind::kHiddenGradient, i}, {ResourceKind::kScratch}};
    if (place.accumulator) {
      op.writes.push_back({ResourceKind::kAccumulator, *place.accumulator});
    }
    // Backward overwrites what was kept.
    if (backward.kept) op.writes.push_back({ResourceKind::kKept, backward.kept->slot});
    EndMicroBatch(tile, accumulator, MicroBatch(i));
    LoadStashBehind(BackwardNumber(stage, i));
  }
  EndUse();
  EndGradient(tile, accumulator);
}

void StepBuilder::ExpertsBackward(int stage) {
  const StageShape& tiles = shape_.stages[stage];
  const StageStepWork& work = shape_.work.stage(stage);
  {
    const int buffer = Use();
    Prefetch();
    Route(stage, buffer, /*backward=*/true, /*totals=*/false);
    EndUse();
  }
  if (tiles.joins) {
    for (int tile = tiles.tile + 1; tile <= tiles.last_expert_tile(); ++tile) {
      ExpertTileForward(stage, tile, /*train=*/true, /*backward=*/true);
    }
    JoinBackward(stage);
  }
  for (int tile = tiles.tile + 1; tile <= tiles.last_expert_tile(); ++tile) {
    ExpertTileBackward(stage, tile);
  }
  const std::optional<int> accumulator = BeginGradient(tiles.tile);
  const int buffer = Use();
  Prefetch();
  for (int i = 0; i < sweep_size_; ++i) {
    const FoldPlace place = PlaceOf(accumulator, MicroBatch(i));
    const RouterBackwardOp backward{.stage = stage,
                                    .micro_batch = MicroBatch(i),
                                    .sweep_index = i,
                                    .weight_buffer = buffer,
                                    .accumulator = place.accumulator,
                                    .input_slot = BackwardSlot(stage, i),
                                    .first = place.first,
                                    .input_gradient = shape_.trains_before(stage)};
    Op& op = Add(Lane::kCompute, backward);
    op.work = Part(i) * BackwardWork(tiles.tile, work.backward, work.weights);
    if (backward.first) op.work.device_bytes += work.first_bytes;
    op.reads = {{ResourceKind::kWeightBuffer, buffer},
                {ResourceKind::kHidden, backward.input_slot}};
    op.writes = {
        {ResourceKind::kHiddenGradient, i}, {ResourceKind::kRouted, i}, {ResourceKind::kScratch}};
    if (place.accumulator) {
      op.writes.push_back({ResourceKind::kAccumulator, *place.accumulator});
    }
    EndMicroBatch(tiles.tile, accumulator, MicroBatch(i));
    LoadStashBehind(BackwardNumber(stage, i));
  }
  EndUse();
  EndGradient(tiles.tile, accumulator);
}

void StepBuilder::ExpertTileBackward(int stage, int tile) {
  const StageStepWork& work = shape_.work.stage(stage);
  const std::optional<int> accumulator = BeginGradient(tile);
  const int buffer = Use();
  Prefetch();
  for (int i = 0; i < sweep_size_; ++i) {
    const FoldPlace place = PlaceOf(accumulator, MicroBatch(i));
    const ExpertsBackwardOp backward{.stage = stage,
                                     .tile = tile,
                                     .micro_batch = MicroBatch(i),
                                     .sweep_index = i,
                                     .weight_buffer = buffer,
                                     .accumulator = place.accumulator,
                                     .first = place.first};
    Op& op = Add(Lane::kCompute, backward);
    op.work = Part(i) * BackwardWork(tile, work.experts_backward, work.experts_weights);
    if (backward.first) op.work.device_bytes += work.experts_first_bytes;
    op.reads = {{ResourceKind::kWeightBuffer, buffer}};
    // The gradient by the experts' results is among the routed tokens if they are joined.
    if (!shape_.stages[stage].joins) op.reads.push_back({ResourceKind::kHiddenGradient, i});
    op.writes = {{ResourceKind::kRouted, i}, {ResourceKind::kScratch}};
    if (place.accumulator) {
      op.writes.push_back({ResourceKind::kAccumulator, *place.accumulator});
    }
    EndMicroBatch(tile, accumulator, MicroBatch(i));
  }
  EndUse();
  EndGradient(tile, accumulator);
}

void StepBuilder::JoinBackward(int stage) {
  const int tile = shape_.stages[stage].last_tile();
  const StageStepWork& work = shape_.work.stage(stage);
  const std::optional<int> accumulator = BeginGradient(tile);
  const int buffer = Use();
  Prefetch();
  for (int i = 0; i < sweep_size_; ++i) {
    const FoldPlace place = PlaceOf(accumulator, MicroBatch(i));
    const JoinBackwardOp backward{.stage = stage,
                                  .micro_batch = MicroBatch(i),
                                  .sweep_index = i,
                                  .weight_buffer = buffer,
                                  .accumulator = place.accumulator,
                                  .input_slot = BackwardSlot(stage, i),
                                  .first = place.first,
                                  .input_gradient = shape_.trains_before(stage)};
    Op& op = Add(Lane::kCompute, backward);
    op.work = Part(i) * BackwardWork(tile, work.join_backward, work.join_weights);
    if (backward.first) op.work.device_bytes += work.join_first_bytes;
    op.reads = {{ResourceKind::kWeightBuffer, buffer},
                {ResourceKind::kHidden, backward.input_slot}};
    op.writes = {
        {ResourceKind::kHiddenGradient, i}, {ResourceKind::kRouted, i}, {ResourceKind::kScratch}};
    if (place.accumulator) {
      op.writes.push_back({ResourceKind::kAccumulator, *place.accumulator});
    }
    EndMicroBatch(tile, accumulator, MicroBatch(i));
  }
  EndUse();
  EndGradient(tile, accumulator);
}

// Each fold of a tied matrix's gradient is the head's part of every micro-batch, then the
// embedding's. Sweeps before the last therefore put theirs by, so that the bits do not depend on
// the number of sweeps.
void StepBuilder::EmbedBackward() {
  const int accumulator = (shape_.tied ? accumulator_of_head_ : BeginGradient(0)).value();
  if (shape_.tied && !last_sweep()) {
    for (int i = 0; i < sweep_size_; ++i) {
      const int m = MicroBatch(i);
      Op& op = Add(Lane::kD2H, StoreHiddenGradientOp{.micro_batch = m, .sweep_index = i});
      op.bytes = shape_.hidden_bytes_per_token * Tokens(i);
      op.reads = {{ResourceKind::kHiddenGradient, i}};
      op.writes = {{ResourceKind::kHostStash, shape_.embedding_stash_slot(m)}};
    }
    EndGradient(0, accumulator);
    return;
  }
  if (shape_.tied) {
    for (int m = 0; m < first_; ++m) PutByEmbedBackward(m, accumulator);
  }
  for (int i = 0; i < sweep_size_; ++i) {
    EmbedBackward(MicroBatch(i), accumulator, {ResourceKind::kHiddenGradient, i});
  }
  EndGradient(0, accumulator);
}

// Micro-batch m of an earlier sweep. Backward has left the slots of hidden states by now.
void StepBuilder::PutByEmbedBackward(int m, int accumulator) {
  const int slot = m % shape_.hidden_slots();
  {
    Op& op = Add(Lane::kH2D, LoadHiddenGradientOp{.micro_batch = m, .output_slot = slot});
    op.bytes = shape_.hidden_bytes_per_token * tokens_[m];
    op.reads = {{ResourceKind::kHostStash, shape_.embedding_stash_slot(m)}};
    op.writes = {{ResourceKind::kHidden, slot}};
  }
  EmbedBackward(m, accumulator, {ResourceKind::kHidden, slot});
}

void StepBuilder::EmbedBackward(int m, int main, Resource hidden_gradient) {
  const auto [place, first] = PlaceOf(main, m);
  const int accumulator = place.value();
  Op& op = Add(Lane::kCompute, EmbedBackwardOp{m, accumulator, hidden_gradient, first});
  op.work = PartOf(tokens_[m]) * shape_.work.embed_backward;
  if (first && !shape_.tied) op.work.device_bytes += shape_.work.embed_first_bytes;
  op.reads = {hidden_gradient, {ResourceKind::kDeviceBatch, slot_}};
  op.writes = {{ResourceKind::kAccumulator, accumulator}};
  if (!shape_.tied) EndMicroBatch(0, main, m);
}

// Lists the loads for which there is room once state `number` is read. So a stage's inputs come
// while its successor computes, ahead of a tile in the link's queue that waits for a buffer.
void StepBuilder::LoadStashBehind(int number) {
  if (!shape_.stash_on_host) return;
  const int end =
      std::min(number + 1 + shape_.hidden_slots(), (shape_.backward_stages() + 1) * sweep_size_);
  for (; next_input_ < end; ++next_input_) {
    const int stage = shape_.stage_count() - next_input_ / sweep_size_;
    const int i = next_input_ % sweep_size_;
    const int output = BackwardSlot(stage, i);
    Op& op = Add(Lane::kH2D, LoadStashOp{.stage = stage, .sweep_index = i, .output_slot = output});
    op.bytes = shape_.hidden_bytes_per_token * Tokens(i);
    op.reads = {{ResourceKind::kHostStash, shape_.stash_slot(stage, i)}};
    op.writes = {{ResourceKind::kHidden, output}};
  }
}

// The work of a backward pass, without the weight gradients that frozen tensors do not have. Which
// tensors those are counts by their elements.
LayerWork StepBuilder::BackwardWork(int tile, const LayerWork& whole,
                                    const LayerWork& weights) const {
  const int64_t frozen = shape_.tile_elements[tile] - shape_.state_elements(tile);
  if (frozen == 0) return whole;
  return whole +
         (-static_cast<double>(frozen) / static_cast<double>(shape_.tile_elements[tile])) * weights;
}

// The accumulator of `tile`, none if the tile has no gradient. The first sweep's first operation on
// it writes it (`first`), the others' begin with the sum over the sweeps before.
std::optional<int> StepBuilder::TakeAccumulator(int tile) {
  if (shape_.state_elements(tile) == 0) return std::nullopt;
  if (shape_.tied && tile == 0) return 2;
  const int accumulator = state_.next_accumulator;
  state_.next_accumulator = (accumulator + 1) % 2;
  return accumulator;
}

// Lists the load of part `part` of `parts` of that sum.
void StepBuilder::LoadPartial(int tile, std::optional<int> accumulator, int part, int parts) {
  if (sweep_ == 0 || !accumulator) return;
  const auto cut = [&](int at) { return shape_.state_elements(tile) * at / parts; };
  const LoadPartialOp load{.tile = tile,
                           .accumulator = *accumulator,
                           .slab = tile,
                           .begin = cut(part),
                           .end = cut(part + 1)};
  Op& op = Add(Lane::kH2D, load);
  op.bytes = (load.end - load.begin) * 4;
  op.reads = {{ResourceKind::kSlab, tile}};
  op.writes = {{ResourceKind::kAccumulator, *accumulator}};
}

// Goes ahead of Prefetch, whose loads wait in the link's queue for a buffer longer than this for
// the accumulator.
std::optional<int> StepBuilder::BeginGradient(int tile) {
  const std::optional<int> accumulator = TakeAccumulator(tile);
  LoadPartial(tile, accumulator, 0, 1);
  BeginFolds(tile, accumulator);
  return accumulator;
}

StepBuilder::FoldPlace StepBuilder::PlaceOf(std::optional<int> main, int m) const {
  const auto end = std::upper_bound(fold_ends_.begin(), fold_ends_.end(), m);
  const int fold = static_cast<int>(end - fold_ends_.begin());
  const bool first = m == (fold == 0 ? 0 : fold_ends_[static_cast<size_t>(fold - 1)]);
  if (!main) return {std::nullopt, first};
  return {shape_.fold_accumulator(*main, fold), first};
}

void StepBuilder::EndMicroBatch(int tile, std::optional<int> main, int m) {
  const auto fold = std::find(fold_ends_.begin(), fold_ends_.end(), m + 1);
  if (!main || fold == fold_ends_.end()) return;
  const int ended = static_cast<int>(fold - fold_ends_.begin());
  JoinFold(tile, *main, ended);
  CloseFolds(tile, main, ended + 1);
}

// Those from `fold` on until one has a micro-batch.
void StepBuilder::CloseFolds(int tile, std::optional<int> main, int fold) {
  if (!main) return;
  for (; fold < end_fold_; ++fold) {
    const auto at = static_cast<size_t>(fold);
    if (fold_ends_[at] > (fold == 0 ? 0 : fold_ends_[at - 1])) return;
    const int accumulator = shape_.fold_accumulator(*main, fold);
    Op& op = Add(Lane::kCompute, ZeroGradientOp{.tile = tile, .accumulator = accumulator});
    op.work.device_bytes = static_cast<double>(shape_.state_elements(tile)) * sizeof(float);
    op.writes = {{ResourceKind::kAccumulator, accumulator}};
    JoinFold(tile, *main, fold);
  }
}

// The folds before this one that are not joined are as many as the bits of its number. Each bit
// that is set from the lowest on stands for as many folds as this one now is joined with.
void StepBuilder::JoinFold(int tile, int main, int fold) {
  if (shape_.is_tied_accumulator(main)) return;  // the embedding's part is still to come
  for (int left = fold; left % 2 == 1; left /= 2, fold -= fold & -fold) {
    Join(tile, shape_.fold_accumulator(main, fold - (fold & -fold)),
         shape_.fold_accumulator(main, fold));
  }
}

void StepBuilder::Join(int tile, int accumulator, int addend) {
  Op& op = Add(Lane::kCompute,
               JoinGradientsOp{.tile = tile, .accumulator = accumulator, .addend = addend});
  op.work.device_bytes = 3.0 * static_cast<double>(shape_.state_elements(tile)) * sizeof(float);
  op.work.launches = 1;
  op.reads = {{ResourceKind::kAccumulator, addend}};
  op.writes = {{ResourceKind::kAccumulator, accumulator}};
}

void StepBuilder::JoinTiedFolds(int main) {
  for (int width = 1; width < shape_.folds; width *= 2) {
    for (int fold = 0; fold < shape_.folds; fold += 2 * width) {
      Join(0, main + fold, main + fold + width);
    }
  }
}

void StepBuilder::EndGradient(int tile, std::optional<int> taken) {
  if (!taken) return;
  const int accumulator = *taken;
  if (shape_.is_tied_accumulator(accumulator)) JoinTiedFolds(accumulator);
  const int64_t elements = shape_.state_elements(tile);
  if (!last_sweep()) {
    Op& op =
        Add(Lane::kD2H, StorePartialOp{.tile = tile, .accumulator = accumulator, .slab = tile});
    op.bytes = elements * 4;
    op.reads = {{ResourceKind::kAccumulator, accumulator}};
    op.writes = {{ResourceKind::kSlab, tile}};
    return;
  }
  if (shape_.ranks == 1) {
    FinishGradient(tile, accumulator);
    return;
  }
  FinishReduced();
  Op& op = Add(Lane::kCollective, ReduceGradientOp{.tile = tile, .accumulator = accumulator});
  op.bytes = (elements - shape_.shard_elements(tile)) * int64_t{sizeof(float)};
  op.writes = {{ResourceKind::kAccumulator, accumulator}};
  if (shape_.whole_loads) {
    // Updates of other ranks follow, so that this rank's loads must be over, also those of a rank
    // that has no micro-batch to use them for.
    op.writes.push_back({ResourceKind::kTileOfRanks, tile});
    state_.updates_awaited[static_cast<size_t>(tile)] = false;
  }
  reduced_ = {tile, accumulator};
}

void StepBuilder::FinishReduced() {
  if (const auto reduced = std::exchange(reduced_, std::nullopt); reduced.has_value()) {
    FinishGradient(reduced->first, reduced->second);
  }
}

void StepBuilder::FinishGradient(int tile, int accumulator) {
  const int64_t shard = shape_.shard_elements(tile);
  {
    Op& op = Add(Lane::kCompute, FinishGradientOp{.tile = tile, .accumulator = accumulator});
    op.work = FinishGradientWork(shard, shape_.gradient_element_bytes);
    op.writes = {{ResourceKind::kAccumulator, accumulator}};
  }
  {
    // Ahead of the gradient: clipping waits for the norms alone.
    Op& op = Add(Lane::kD2H, StoreNormOp{.tile = tile, .accumulator = accumulator});
    op.bytes = shape_.folds * int64_t{sizeof(double)};
    op.reads = {{ResourceKind::kAccumulator, accumulator}};
    op.writes = {shape_.host_norm(slot_, tile)};
  }
  int slab = tile;
  // The device takes its part of tile 1, and without clipping of every tile, from the accumulator,
  // which nothing else is summed in before that.
  const bool held = shape_.clipping && tile != 1;
  const int64_t stored = held ? shard : shape_.host_end(tile) - shape_.shard_begin(tile);
  if (tile == 1) accumulator_of_first_ = accumulator;
  if (stored > 0) {
    if (!shape_.slab_per_tile) {
      slab = state_.next_slab;
      state_.next_slab = (slab + 1) % shape_.gradient_slabs;
    }
    Op& op =
        Add(Lane::kD2H, StoreGradientOp{.tile = tile, .accumulator = accumulator, .slab = slab});
    op.bytes = stored * shape_.gradient_element_bytes;
    op.reads = {{ResourceKind::kAccumulator, accumulator}};
    op.writes = {{ResourceKind::kSlab, slab}};
  }
  if (shape_.clipping) return;
  updates_.UpdateTile(tile, slab, accumulator);
  uses_.Forget(tile);
}

}  // namespace megatrain

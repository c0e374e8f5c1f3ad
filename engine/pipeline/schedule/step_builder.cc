// The order of a step: BuildTrainingStep, BuildEvaluation and BuildPrediction. Clipping changes it:
// with clipping all updates wait for the last gradient and follow it (Train, and
// UpdateBuilder::ClipAndUpdate); without it each follows its own gradient (EndGradient).
#include "engine/pipeline/schedule/step_builder.h"

#include <algorithm>
#include <utility>

namespace megatrain {

StepBuilder::StepBuilder(const PipelineShape& shape, const std::vector<int64_t>& micro_batch_tokens,
                         PipelineState& state, int step_micro_batches)
    : shape_(shape),
      tokens_(micro_batch_tokens),
      micro_batches_(static_cast<int>(micro_batch_tokens.size())),
      // A rank without micro-batches goes through the tiles with the others.
      sweeps_(std::max(
          1, (micro_batches_ + shape.sweep_micro_batches - 1) / shape.sweep_micro_batches)),
      state_(state),
      slot_(state.next_step_slot),
      uses_(shape.weight_buffers, &state.buffer_tile),
      updates_(shape, slot_, &schedule_) {
  state_.next_step_slot = (slot_ + 1) % kStepSlots;
  for (int stage = 0; stage < shape.stage_count(); ++stage) {
    keeping_behind_.push_back(shape.keeping_stages(stage + 1));
  }
  const int64_t all = step_micro_batches > 0 ? step_micro_batches : micro_batches_ * shape.ranks;
  const auto cut = [&](int fold) {
    return static_cast<int>(all * (shape.rank * shape.folds + fold) / shape.blocks());
  };
  for (int fold = 1; fold <= shape.folds; ++fold) fold_ends_.push_back(cut(fold) - cut(0));
}

Schedule StepBuilder::Train() {
  for (int sweep = 0; sweep < sweeps_; ++sweep) ListUses(/*backward=*/true);
  Upload();
  for (int sweep = 0; sweep < sweeps_; ++sweep) {
    BeginSweep(sweep);
    accumulator_of_head_ = TakeAccumulator(shape_.head_tile());
    Forward(/*train=*/true);
    Head();
    for (int stage = shape_.stage_count() - 1; stage >= shape_.lowest_stage(); --stage) {
      shape_.stages[stage].has_experts() ? ExpertsBackward(stage) : LayerBackward(stage);
    }
    if (shape_.embedding_trained) EmbedBackward();
  }
  FinishReduced();
  if (shape_.clipping) {
    constexpr int kBuffer = 0;  // any: this step needs none any more
    updates_.ClipAndUpdate(accumulator_of_first_, kBuffer);
    for (int tile = 0; tile < shape_.tiles(); ++tile) {
      if (shape_.state_elements(tile) > 0) uses_.Forget(tile);
    }
    if (shape_.first_tile_in_buffer()) {
      state_.buffer_tile[kBuffer] = 1;
      state_.first_tile_partly = true;
    }
  } else {
    updates_.ShareResults(/*losses=*/false, /*norms=*/true);  // for the step's record
  }
  updates_.CheckUpdates();
  return std::move(schedule_);
}

Schedule StepBuilder::Evaluate() {
  for (int sweep = 0; sweep < sweeps_; ++sweep) ListUses(/*backward=*/false);
  Upload();
  for (int sweep = 0; sweep < sweeps_; ++sweep) {
    BeginSweep(sweep);
    Forward(/*train=*/false);
    HeadLoss();
  }
  StoreLosses();
  updates_.ShareResults(/*losses=*/true, /*norms=*/false);
  return std::move(schedule_);
}

Schedule StepBuilder::Predict(CacheUse cache) {
  cache_ = cache;
  // One pass follows another, so that the tiles kept are those which the next one uses first.
  for (int sweep = 0; sweep <= sweeps_; ++sweep) ListUses(/*backward=*/false);
  Upload();
  for (int sweep = 0; sweep < sweeps_; ++sweep) {
    BeginSweep(sweep);
    Forward(/*train=*/false);
    HeadLogits();
  }
  return std::move(schedule_);
}

void StepBuilder::ListUses(bool backward) {
  if (!shape_.embedding_from_host) uses_.Append(0);
  const auto use = [&](const StageShape& stage) {
    for (int tile = stage.tile; tile <= stage.last_tile(); ++tile) uses_.Append(tile);
  };
  for (const StageShape& stage : shape_.stages) use(stage);
  uses_.Append(shape_.head_tile());
  if (!backward) return;
  for (int i = shape_.stage_count() - 1; i >= shape_.lowest_stage(); --i) {
    const StageShape& stage = shape_.stages[i];
    use(stage);
    // A join lies between two passes through the experts.
    for (int tile = stage.tile + 1; stage.joins && tile <= stage.last_expert_tile(); ++tile) {
      uses_.Append(tile);
    }
    if (stage.has_experts()) uses_.Append(stage.tile);  // the router's gradient comes last
  }
}

void StepBuilder::Prefetch() {
  for (int ahead = 1; ahead < shape_.weight_buffers && ahead < uses_.left(); ++ahead) {
    Buffer(ahead);
  }
}

int StepBuilder::Buffer(int ahead) {
  const WeightUses::Place place = uses_.Take(ahead);
  const int tile = place.tile;
  const bool partly = tile == 1 && std::exchange(state_.first_tile_partly, false);
  // Elements that no update changes come first, for they wait for none.
  if (place.load || partly) {
    const int first = shape_.whole_loads ? 0 : shape_.rank;
    const int last = shape_.whole_loads ? shape_.ranks - 1 : shape_.rank;
    Load(place, -1, shape_.stateless_cut(tile, first), shape_.stateless_cut(tile, last + 1));
  }
  if (shape_.whole_loads) {
    if (place.load) LoadAllShards(place);
    return place.buffer;
  }
  // Apart, for one side may be later than the other.
  for (int part = 0; (place.load || partly) && part < shape_.host_parts(tile); ++part) {
    Load(place, shape_.host_part(tile, part), shape_.host_cut(tile, part),
         shape_.host_cut(tile, part + 1));
  }
  if (place.load) {
    Load(place, shape_.device_part(tile), shape_.host_end(tile), shape_.shard_end(tile));
    Gather(place);
  }
  return place.buffer;
}

void StepBuilder::Load(const WeightUses::Place& place, int part, int64_t begin, int64_t end) {
  if (begin == end) return;
  Op& op = Add(Lane::kH2D, LoadTileOp{place.tile, place.buffer, begin, end});
  op.bytes = (end - begin) * shape_.weight_element_bytes;
  if (part >= 0) op.reads = {{ResourceKind::kTileWeights, part}};
  // A part that is loaded beside the device's update does not wait for the update's end.
  op.writes = {place.load ? Resource{ResourceKind::kWeightBuffer, place.buffer}
                          : Resource{ResourceKind::kFirstTileHostPart}};
}

void StepBuilder::Gather(const WeightUses::Place& place) {
  if (shape_.ranks == 1) return;
  const int tile = place.tile;
  const int64_t own = shape_.shard_elements(tile) + shape_.stateless_held(tile);
  Op& op = Add(Lane::kCollective, GatherWeightsOp{tile, place.buffer});
  op.bytes = (shape_.tile_elements[tile] - own) * shape_.weight_element_bytes;
  op.writes = {{ResourceKind::kWeightBuffer, place.buffer}};
}

void StepBuilder::LoadAllShards(const WeightUses::Place& place) {
  const int64_t elements = shape_.state_elements(place.tile);
  if (elements == 0) return;
  AwaitUpdates(place.tile);
  Op& op = Add(Lane::kH2D, LoadTileOp{place.tile, place.buffer, 0, elements});
  op.bytes = elements * shape_.weight_element_bytes;
  op.reads = {{ResourceKind::kTileOfRanks, place.tile}};
  ReadOwnWeights(place.tile, op);
  op.writes = {{ResourceKind::kWeightBuffer, place.buffer}};
}

// Once a step is enough, and spares the backward pass's loads to wait on the lane collective for
// the reductions before them.
void StepBuilder::AwaitUpdates(int tile) {
  std::vector<bool>& awaited = state_.updates_awaited;
  awaited.resize(static_cast<size_t>(shape_.tiles()));
  if (awaited[static_cast<size_t>(tile)]) return;
  awaited[static_cast<size_t>(tile)] = true;
  Op& op = Add(Lane::kCollective, AwaitUpdatesOp{tile});
  ReadOwnWeights(tile, op);
  op.writes = {{ResourceKind::kTileOfRanks, tile}};
}

void StepBuilder::ReadOwnWeights(int tile, Op& op) const {
  if (shape_.host_end(tile) > shape_.shard_begin(tile)) {
    op.reads.push_back({ResourceKind::kTileWeights, tile});
  }
  if (shape_.updates_on_device(tile)) {
    op.reads.push_back({ResourceKind::kTileWeights, shape_.device_part(tile)});
  }
}

void StepBuilder::Upload() {
  Op& op = Add(Lane::kH2D, UploadBatchOp{});
  const int integers = cache_ == CacheUse::kNone ? 6 : 8;  // a token, as in BatchArrays
  for (int64_t tokens : tokens_) {
    op.bytes +=
        tokens * integers * int64_t{sizeof(int32_t)} + shape_.pairs_max(tokens) * kPairBytes;
  }
  op.writes = {{ResourceKind::kDeviceBatch, slot_}};
}

void StepBuilder::BeginSweep(int sweep) {
  sweep_ = sweep;
  first_ = sweep * shape_.sweep_micro_batches;
  sweep_size_ = std::min(shape_.sweep_micro_batches, micro_batches_ - first_);
  first_fold_ = 0;
  end_fold_ = shape_.folds;
  if (shape_.folds > 1 && sweeps_ > 1) {  // whole folds
    const int half = shape_.folds / 2, cut = fold_ends_[static_cast<size_t>(half) - 1];
    first_ = sweep == 0 ? 0 : cut;
    sweep_size_ = sweep == 0 ? cut : micro_batches_ - cut;
    (sweep == 0 ? end_fold_ : first_fold_) = half;
  }
  next_input_ = sweep_size_;
}

void StepBuilder::HeadLoss() {
  const int buffer = Use();
  for (int i = 0; i < sweep_size_; ++i) {
    const int input = ForwardSlot(shape_.stage_count(), i);
    Op& op =
        Add(Lane::kCompute,
            HeadLossOp{.micro_batch = MicroBatch(i), .weight_buffer = buffer, .input_slot = input});
    op.work = Part(i) * shape_.work.head_loss;
    op.reads = {{ResourceKind::kWeightBuffer, buffer},
                {ResourceKind::kHidden, input},
                {ResourceKind::kDeviceBatch, slot_}};
    op.writes = {{ResourceKind::kScratch}, {ResourceKind::kDeviceLosses, slot_}};
  }
  EndUse();
}

void StepBuilder::HeadLogits() {
  const int buffer = Use();
  Prefetch();
  for (int i = 0; i < sweep_size_; ++i) {
    const int input = ForwardSlot(shape_.stage_count(), i);
    Op& op = Add(
        Lane::kCompute,
        HeadLogitsOp{.micro_batch = MicroBatch(i), .weight_buffer = buffer, .input_slot = input});
    op.work = Part(i) * shape_.work.head_loss;
    op.reads = {{ResourceKind::kWeightBuffer, buffer}, {ResourceKind::kHidden, input}};
    op.writes = {{ResourceKind::kScratch}};
  }
  EndUse();
}

void StepBuilder::StoreLosses() {
  Op& op = Add(Lane::kD2H, StoreLossesOp{});
  op.bytes = micro_batches_ * shape_.loss_bytes();
  op.reads = {{ResourceKind::kDeviceLosses, slot_}};
  op.writes = {{ResourceKind::kHostLosses, slot_}};
}

Schedule BuildTrainingStep(const PipelineShape& shape,
                           const std::vector<int64_t>& micro_batch_tokens, PipelineState& state,
                           int step_micro_batches) {
  return StepBuilder(shape, micro_batch_tokens, state, step_micro_batches).Train();
}

Schedule BuildEvaluation(const PipelineShape& shape, const std::vector<int64_t>& micro_batch_tokens,
                         PipelineState& state) {
  return StepBuilder(shape, micro_batch_tokens, state).Evaluate();
}

Schedule BuildPrediction(const PipelineShape& shape, const std::vector<int64_t>& micro_batch_tokens,
                         CacheUse cache, PipelineState& state) {
  return StepBuilder(shape, micro_batch_tokens, state).Predict(cache);
}

}  // namespace megatrain

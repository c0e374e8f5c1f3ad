// The order of a step's operations: BuildTrainingStep and BuildEvaluation.
#include <algorithm>
#include <utility>

#include "engine/pipeline/schedule.h"
#include "engine/pipeline/update_builder.h"
#include "engine/pipeline/weight_uses.h"

namespace megatrain {
namespace {

class StepBuilder {
 public:
  StepBuilder(const PipelineShape& shape, const std::vector<int64_t>& micro_batch_tokens,
              PipelineState& state)
      : shape_(shape),
        tokens_(micro_batch_tokens),
        micro_batches_(static_cast<int>(micro_batch_tokens.size())),
        sweeps_((micro_batches_ + shape.sweep_micro_batches - 1) / shape.sweep_micro_batches),
        state_(state),
        slot_(state.next_step_slot),
        uses_(shape.weight_buffers, &state.buffer_tile),
        updates_(shape, slot_, &schedule_) {
    state_.next_step_slot = (slot_ + 1) % kStepSlots;
  }

  Schedule Train() {
    for (int sweep = 0; sweep < sweeps_; ++sweep) ListUses(/*backward=*/true);
    Upload();
    for (int sweep = 0; sweep < sweeps_; ++sweep) {
      BeginSweep(sweep);
      accumulator_of_head_ = TakeAccumulator(shape_.head_tile());
      Forward(/*train=*/true);
      Head();
      for (int layer = shape_.layers - 1; layer >= 0; --layer) LayerBackward(layer);
      EmbedBackward();
    }
    if (shape_.clipping) {
      updates_.ClipAndUpdate();
      for (int tile = 0; tile < shape_.tiles(); ++tile) uses_.Forget(tile);
    }
    updates_.CheckUpdates();
    return std::move(schedule_);
  }

  Schedule Evaluate() {
    for (int sweep = 0; sweep < sweeps_; ++sweep) ListUses(/*backward=*/false);
    Upload();
    for (int sweep = 0; sweep < sweeps_; ++sweep) {
      BeginSweep(sweep);
      Forward(/*train=*/false);
      const int buffer = Use();
      for (int i = 0; i < sweep_size_; ++i) {
        Op& op = Add(OpKind::kHeadLoss, Lane::kCompute);
        AtMicroBatch(op, i);
        op.tile = shape_.head_tile();
        op.weight_buffer = buffer;
        op.input_slot = ForwardSlot(shape_.layers, i);
        op.work = Part(i) * shape_.work.head_loss;
        op.reads = {{ResourceKind::kWeightBuffer, buffer},
                    {ResourceKind::kHidden, op.input_slot},
                    {ResourceKind::kDeviceBatch, slot_}};
        op.writes = {{ResourceKind::kScratch}, {ResourceKind::kDeviceLosses, slot_}};
      }
      EndUse();
    }
    StoreLosses();
    return std::move(schedule_);
  }

 private:
  bool last_sweep() const { return sweep_ == sweeps_ - 1; }
  int64_t Tokens(int sweep_index) const { return tokens_[first_ + sweep_index]; }
  // Of the work of a whole micro-batch.
  double Part(int sweep_index) const { return PartOf(tokens_[first_ + sweep_index]); }
  double PartOf(int64_t tokens) const {
    return static_cast<double>(tokens) / static_cast<double>(shape_.work.micro_batch_tokens);
  }

  Op& Add(OpKind kind, Lane lane) {
    Op& op = schedule_.ops.emplace_back();
    op.kind = kind;
    op.lane = lane;
    op.step_slot = slot_;
    return op;
  }
  void AtMicroBatch(Op& op, int sweep_index) {
    op.sweep_index = sweep_index;
    op.micro_batch = first_ + sweep_index;
  }

  // --- Weights: loaded weight_buffers - 1 uses ahead.

  void ListUses(bool backward) {
    const int first = shape_.embedding_from_host ? 1 : 0;
    for (int tile = first; tile <= shape_.layers; ++tile) uses_.Append(tile);
    uses_.Append(shape_.head_tile());
    if (!backward) return;
    for (int tile = shape_.layers; tile >= 1; --tile) uses_.Append(tile);
  }

  // The buffer that holds the present use's tile; loads it if no earlier use did.
  int Use() { return Buffer(0); }

  // Lists the loads that may run while the present use computes.
  void Prefetch() {
    for (int ahead = 1; ahead < shape_.weight_buffers && ahead < uses_.left(); ++ahead) {
      Buffer(ahead);
    }
  }
  void EndUse() { uses_.End(); }

  int Buffer(int ahead) {
    const WeightUses::Place place = uses_.Take(ahead);
    if (place.load) {
      const int64_t host = shape_.host_elements(place.tile);
      Load(place, place.tile, 0, host);
      // Apart, for one side may be later than the other.
      Load(place, shape_.device_part(place.tile), host, shape_.tile_elements[place.tile]);
    }
    return place.buffer;
  }

  void Load(const WeightUses::Place& place, int part, int64_t begin, int64_t end) {
    if (begin == end) return;
    Op& op = Add(OpKind::kLoadTile, Lane::kH2D);
    op.tile = place.tile;
    op.weight_buffer = place.buffer;
    op.begin = begin;
    op.end = end;
    op.bytes = (end - begin) * shape_.weight_element_bytes;
    op.reads = {{ResourceKind::kTileWeights, part}};
    op.writes = {{ResourceKind::kWeightBuffer, place.buffer}};
  }

  // --- Hidden states.

  int ForwardSlot(int boundary, int i) const {
    if (!shape_.stash_on_host) return boundary * shape_.sweep_micro_batches + i;
    const int ring = shape_.hidden_slots();
    return ((i - 2 * boundary) % ring + ring) % ring;
  }

  // A smaller last sweep has the room of a whole one.
  int KeptPair(int layer, int i) const { return (shape_.layers - 1 - layer) * sweep_size_ + i; }
  void Keep(Op& op, int layer, int i) {
    const int pair = KeptPair(layer, i);
    if (pair >= shape_.kept) return;
    op.kept_slot = pair;
    op.keep = pair < shape_.kept_everything ? KeepLevel::kEverything : KeepLevel::kCheapRecomputed;
  }

  // --- The step.

  void Upload() {
    Op& op = Add(OpKind::kUploadBatch, Lane::kH2D);
    for (int64_t tokens : tokens_) op.bytes += tokens * 6 * int64_t{sizeof(int32_t)};
    op.writes = {{ResourceKind::kDeviceBatch, slot_}};
  }

  void BeginSweep(int sweep) {
    sweep_ = sweep;
    first_ = sweep * shape_.sweep_micro_batches;
    sweep_size_ = std::min(shape_.sweep_micro_batches, micro_batches_ - first_);
    next_input_ = sweep_size_;
  }

  void Forward(bool train) {
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
        op.writes = {{ResourceKind::kHidden, op.output_slot}, {ResourceKind::kScratch}};
        if (train) Keep(op, layer, i);
        if (op.kept_slot >= 0) op.writes.push_back({ResourceKind::kKept, op.kept_slot});
        if (stash && layer + 1 < shape_.layers) StoreStash(layer + 1, i);
      }
      EndUse();
    }
  }

  void EmbedForward(bool train) {
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

  void StoreStash(int layer, int i) {
    Op& op = Add(OpKind::kStoreStash, Lane::kD2H);
    AtMicroBatch(op, i);
    op.layer = layer;
    op.input_slot = ForwardSlot(layer, i);
    op.stash_slot = shape_.stash_slot(layer, i);
    op.bytes = shape_.hidden_bytes_per_token * Tokens(i);
    op.reads = {{ResourceKind::kHidden, op.input_slot}};
    op.writes = {{ResourceKind::kHostStash, op.stash_slot}};
  }

  // Backward reads one state after the other: the head its inputs, then every layer its own from
  // the last to the first. By their number in this row they take turns in the ring, going on from
  // where forward left the head's.
  int BackwardSlot(int layer, int i) const {
    if (!shape_.stash_on_host) return ForwardSlot(layer, i);
    return (ForwardSlot(shape_.layers, 0) + BackwardNumber(layer, i)) % shape_.hidden_slots();
  }
  int BackwardNumber(int boundary, int i) const {
    return (shape_.layers - boundary) * sweep_size_ + i;
  }

  // Lists the loads for which there is room once state `number` is read. So a layer's inputs come
  // while its successor computes, ahead of a tile in the link's queue that waits for a buffer.
  void LoadStashBehind(int number) {
    if (!shape_.stash_on_host) return;
    const int end = std::min(number + 1 + shape_.hidden_slots(), (shape_.layers + 1) * sweep_size_);
    for (; next_input_ < end; ++next_input_) {
      const int layer = shape_.layers - next_input_ / sweep_size_;
      const int i = next_input_ % sweep_size_;
      Op& op = Add(OpKind::kLoadStash, Lane::kH2D);
      AtMicroBatch(op, i);
      op.layer = layer;
      op.stash_slot = shape_.stash_slot(layer, i);
      op.output_slot = BackwardSlot(layer, i);
      op.bytes = shape_.hidden_bytes_per_token * Tokens(i);
      op.reads = {{ResourceKind::kHostStash, op.stash_slot}};
      op.writes = {{ResourceKind::kHidden, op.output_slot}};
    }
  }

  // The accumulator of `tile`. The first sweep's first operation on it writes it (Op::first), the
  // others' begin with the sum over the sweeps before.
  int TakeAccumulator(int tile) {
    if (shape_.tied && tile == 0) return 2;
    const int accumulator = state_.next_accumulator;
    state_.next_accumulator = (accumulator + 1) % 2;
    return accumulator;
  }

  // Lists the load of part `part` of `parts` of that sum.
  void LoadPartial(int tile, int accumulator, int part, int parts) {
    if (sweep_ == 0) return;
    const auto cut = [&](int at) { return shape_.tile_elements[tile] * at / parts; };
    Op& op = Add(OpKind::kLoadPartial, Lane::kH2D);
    op.tile = op.slab = tile;
    op.accumulator = accumulator;
    op.begin = cut(part);
    op.end = cut(part + 1);
    op.bytes = (op.end - op.begin) * 4;
    op.reads = {{ResourceKind::kSlab, tile}};
    op.writes = {{ResourceKind::kAccumulator, accumulator}};
  }

  // Goes ahead of Prefetch, whose loads wait in the link's queue for a buffer longer than this for
  // the accumulator.
  int BeginGradient(int tile) {
    const int accumulator = TakeAccumulator(tile);
    LoadPartial(tile, accumulator, 0, 1);
    return accumulator;
  }

  void EndGradient(int tile, int accumulator) {
    const int64_t elements = shape_.tile_elements[tile];
    if (!last_sweep()) {
      Op& op = Add(OpKind::kStorePartial, Lane::kD2H);
      op.tile = op.slab = tile;
      op.accumulator = accumulator;
      op.bytes = elements * 4;
      op.reads = {{ResourceKind::kAccumulator, accumulator}};
      op.writes = {{ResourceKind::kSlab, tile}};
      return;
    }
    {
      Op& op = Add(OpKind::kFinishGradient, Lane::kCompute);
      op.tile = tile;
      op.accumulator = accumulator;
      op.work = FinishGradientWork(elements, shape_.gradient_element_bytes);
      op.writes = {{ResourceKind::kAccumulator, accumulator}};
    }
    {
      // Ahead of the gradient: clipping waits for the norms alone.
      Op& op = Add(OpKind::kStoreNorm, Lane::kD2H);
      op.tile = tile;
      op.accumulator = accumulator;
      op.bytes = sizeof(double);
      op.reads = {{ResourceKind::kAccumulator, accumulator}};
      op.writes = {shape_.host_norm(slot_, tile)};
    }
    int slab = tile;
    // Without clipping the device takes its part from the accumulator.
    const int64_t stored = shape_.clipping ? elements : shape_.host_elements(tile);
    if (stored > 0) {
      if (!shape_.slab_per_tile) {
        slab = state_.next_slab;
        state_.next_slab = (slab + 1) % shape_.gradient_slabs;
      }
      Op& op = Add(OpKind::kStoreGradient, Lane::kD2H);
      op.tile = tile;
      op.accumulator = accumulator;
      op.slab = slab;
      op.bytes = stored * shape_.gradient_element_bytes;
      op.reads = {{ResourceKind::kAccumulator, accumulator}};
      op.writes = {{ResourceKind::kSlab, slab}};
    }
    if (shape_.clipping) return;
    updates_.UpdateTile(tile, slab, accumulator);
    uses_.Forget(tile);
  }

  void Head() {
    const int tile = shape_.head_tile();
    const int buffer = Use();
    Prefetch();
    LoadStashBehind(-1);
    for (int i = 0; i < sweep_size_; ++i) {
      Op& op = Add(OpKind::kHead, Lane::kCompute);
      AtMicroBatch(op, i);
      op.tile = tile;
      op.weight_buffer = buffer;
      op.accumulator = accumulator_of_head_;
      op.first = op.micro_batch == 0;
      op.input_slot = ForwardSlot(shape_.layers, i);
      op.work = Part(i) * shape_.work.head;
      if (op.first) op.work.device_bytes += shape_.work.head_first_bytes;
      op.reads = {{ResourceKind::kWeightBuffer, buffer},
                  {ResourceKind::kHidden, op.input_slot},
                  {ResourceKind::kDeviceBatch, slot_}};
      op.writes = {{ResourceKind::kHiddenGradient, i},
                   {ResourceKind::kAccumulator, accumulator_of_head_},
                   {ResourceKind::kScratch},
                   {ResourceKind::kDeviceLosses, slot_}};
      LoadStashBehind(BackwardNumber(shape_.layers, i));
    }
    EndUse();
    if (last_sweep()) {
      StoreLosses();
      if (!shape_.clipping) {
        Op& op = Add(OpKind::kCheckLosses, Lane::kUpdate);
        op.reads = {{ResourceKind::kHostLosses, slot_}};
      }
    }
    if (!shape_.tied) EndGradient(tile, accumulator_of_head_);
  }

  void StoreLosses() {
    Op& op = Add(OpKind::kStoreLosses, Lane::kD2H);
    op.bytes = static_cast<int64_t>(micro_batches_) * 8;
    op.reads = {{ResourceKind::kDeviceLosses, slot_}};
    op.writes = {{ResourceKind::kHostLosses, slot_}};
  }

  void LayerBackward(int layer) {
    const int tile = layer + 1;
    const int accumulator = BeginGradient(tile);
    const int buffer = Use();
    Prefetch();
    for (int i = 0; i < sweep_size_; ++i) {
      Op& op = Add(OpKind::kLayerBackward, Lane::kCompute);
      AtMicroBatch(op, i);
      op.layer = layer;
      op.tile = tile;
      op.weight_buffer = buffer;
      op.accumulator = accumulator;
      op.first = op.micro_batch == 0;
      op.input_slot = BackwardSlot(layer, i);
      Keep(op, layer, i);
      op.work = Part(i) *
                (shape_.work.layer_backward + shape_.work.recompute[static_cast<size_t>(op.keep)]);
      if (op.first) op.work.device_bytes += shape_.work.layer_first_bytes;
      op.reads = {{ResourceKind::kWeightBuffer, buffer},
                  {ResourceKind::kHidden, op.input_slot},
                  {ResourceKind::kDeviceBatch, slot_}};
      op.writes = {{ResourceKind::kHiddenGradient, i},
                   {ResourceKind::kAccumulator, accumulator},
                   {ResourceKind::kScratch}};
      // Backward overwrites what was kept.
      if (op.kept_slot >= 0) op.writes.push_back({ResourceKind::kKept, op.kept_slot});
      LoadStashBehind(BackwardNumber(layer, i));
    }
    EndUse();
    EndGradient(tile, accumulator);
  }

  // The gradient of a tied matrix is one left fold: the head's part of every micro-batch, then the
  // embedding's. Sweeps before the last therefore put theirs by, so that the bits do not depend on
  // the number of sweeps.
  void EmbedBackward() {
    const int accumulator = shape_.tied ? accumulator_of_head_ : BeginGradient(0);
    if (shape_.tied && !last_sweep()) {
      for (int i = 0; i < sweep_size_; ++i) {
        Op& op = Add(OpKind::kStoreHiddenGradient, Lane::kD2H);
        AtMicroBatch(op, i);
        op.stash_slot = shape_.embedding_stash_slot(op.micro_batch);
        op.bytes = shape_.hidden_bytes_per_token * Tokens(i);
        op.reads = {{ResourceKind::kHiddenGradient, i}};
        op.writes = {{ResourceKind::kHostStash, op.stash_slot}};
      }
      EndGradient(0, accumulator);
      return;
    }
    if (shape_.tied) {
      for (int m = 0; m < first_; ++m) PutByEmbedBackward(m, accumulator);
    }
    for (int i = 0; i < sweep_size_; ++i) {
      Op& op = Add(OpKind::kEmbedBackward, Lane::kCompute);
      AtMicroBatch(op, i);
      op.tile = 0;
      op.accumulator = accumulator;
      op.work = Part(i) * shape_.work.embed_backward;
      op.first = !shape_.tied && op.micro_batch == 0;
      if (op.first) op.work.device_bytes += shape_.work.embed_first_bytes;
      op.reads = {{ResourceKind::kHiddenGradient, i}, {ResourceKind::kDeviceBatch, slot_}};
      op.writes = {{ResourceKind::kAccumulator, accumulator}};
    }
    EndGradient(0, accumulator);
  }

  // Micro-batch m of an earlier sweep. Backward has left the slots of hidden states by now.
  void PutByEmbedBackward(int m, int accumulator) {
    const int slot = m % shape_.hidden_slots();
    {
      Op& op = Add(OpKind::kLoadHiddenGradient, Lane::kH2D);
      op.micro_batch = m;
      op.stash_slot = shape_.embedding_stash_slot(m);
      op.output_slot = slot;
      op.bytes = shape_.hidden_bytes_per_token * tokens_[m];
      op.reads = {{ResourceKind::kHostStash, op.stash_slot}};
      op.writes = {{ResourceKind::kHidden, slot}};
    }
    Op& op = Add(OpKind::kEmbedBackward, Lane::kCompute);
    op.micro_batch = m;
    op.tile = 0;
    op.accumulator = accumulator;
    op.input_slot = slot;
    op.work = PartOf(tokens_[m]) * shape_.work.embed_backward;
    op.reads = {{ResourceKind::kHidden, slot}, {ResourceKind::kDeviceBatch, slot_}};
    op.writes = {{ResourceKind::kAccumulator, accumulator}};
  }

  const PipelineShape& shape_;
  const std::vector<int64_t>& tokens_;
  const int micro_batches_;
  const int sweeps_;
  PipelineState& state_;
  const int slot_;
  Schedule schedule_;
  WeightUses uses_;
  UpdateBuilder updates_;
  int sweep_ = 0;
  int first_ = 0;       // the sweep's first micro-batch
  int sweep_size_ = 0;  // micro-batches in it
  int next_input_ = 0;  // number, among the states that backward reads, of the next to load
  int accumulator_of_head_ = -1;
};

}  // namespace

Schedule BuildTrainingStep(const PipelineShape& shape,
                           const std::vector<int64_t>& micro_batch_tokens, PipelineState& state) {
  return StepBuilder(shape, micro_batch_tokens, state).Train();
}

Schedule BuildEvaluation(const PipelineShape& shape, const std::vector<int64_t>& micro_batch_tokens,
                         PipelineState& state) {
  return StepBuilder(shape, micro_batch_tokens, state).Evaluate();
}

}  // namespace megatrain

// Describes a step as data: operations (operation.h) on lanes, with the resources that each reads
// and writes. executor.h runs it.
//
// Run one after the other in the order of `Schedule::ops`, the operations give the right result.
// dependency_tracker.h derives from this order and from the resources which operations must wait
// for which when the lanes run side by side. A load is listed as early as the last reader of its
// buffer allows, so that its lane can run ahead.
//
// A training step is layer-major: all micro-batches of a sweep go through a tile before the next
// tile is needed. A step is one sweep or several.
// - With one fold (PipelineShape::folds) the gradient of a tile is one left fold over chunks of
//   tokens, then micro-batches, then sweeps: ((g0 + g1) + g2) + ... Between sweeps its sum rests in
//   a slab as FP32. So the bits do not depend on the number of sweeps.
// - With several folds the gradient is a sum of several left folds, over consecutive micro-batches,
//   joined as a pairwise tree. One device may take them in two sweeps of half of them each. Ranks
//   have the same number of them each, so that the tree, and with it the bits, do not depend on the
//   number of ranks. A fold has an accumulator until it is joined.
// - Tiles are loaded weight_buffers - 1 uses ahead. A tile that a buffer still holds is not loaded
//   again, for example where the backward pass follows the forward pass.
// - With a stash on the host, the inputs of a stage's backward are loaded while the backward of the
//   next higher stage computes, ahead of a tile that waits for a buffer.
// - A layer with experts is two stages. In the second, all micro-batches of the sweep are routed,
//   then each tile of experts is used by all of them, in the forward and in the backward pass.
//   Where the experts' results are joined with a dense unit's, the backward pass needs these
//   results. It first goes through the experts as the forward pass does.
// - A tied embedding and head are one tile. Its accumulator stays on the device from the head's
//   backward to the embedding's. The tile is loaded for the head. It is also loaded for the
//   embedding's forward, unless that can read host memory (embedding_from_host).
// - Several ranks (devices) train one model together: each computes its micro-batches and updates
//   its shard, an even part of every tile. It loads its shard and gathers the others' from their
//   devices; it adds its gradient to theirs and keeps the sum of its shard. All ranks have the same
//   operations in the same order on the lane collective, whatever their micro-batches are.
// - Ranks of one process may load whole tiles instead (whole_loads), from the host memory that they
//   share. The first load after an update waits until all ranks have updated the tile. No later
//   load has to: the next update follows the reduction of the tile's gradient, and a rank enters
//   that reduction only when its own loads are done.
// - Steps go on during a checkpoint. The io lane writes a tile between two of its updates, and the
//   later update waits for the write. For an evaluation the trainer first waits for all steps.
#ifndef MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_SCHEDULE_H_
#define MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_SCHEDULE_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/device/kernel_args.h"
#include "engine/model/cost/layer_work.h"
#include "engine/pipeline/schedule/operation.h"

namespace megatrain {

struct Schedule {
  std::vector<Op> ops;  // in serial order
};

// The bytes of an element's state in a tile: weight, remainder and moments, or master and moments.
inline constexpr int64_t kStateElementBytes = 12;
// Updates are divided between host and device in units of 1 / kUpdateParts of a rank's shard of a
// tile.
inline constexpr int kUpdateParts = 64;
// The parts in which the host updates tile 1 if first_tile_leads(), and how many of them precede
// the embedding's rows.
inline constexpr int kFirstTileParts = 8;
inline constexpr int kFirstTilePartsAhead = 4;
// The bytes of a pair of answers in a batch: four bounds and two log-probabilities of the
// reference.
inline constexpr int64_t kPairBytes = 4 * sizeof(int32_t) + 2 * sizeof(double);
// A tile's update is cut at multiples of this many elements: whole cache lines of every section.
inline constexpr int64_t kUpdateAlignment = 128;

// A stage's part of StepWork. In a gradient's first micro-batch the device moves `first_bytes`
// (`experts_first_bytes`, ...) more than in the others; they are negative if it moves fewer.
struct StageStepWork {
  LayerWork forward;   // for experts, of RouteOp
  LayerWork backward;  // with everything kept; for experts, of RouterBackwardOp
  LayerWork weights;   // the part of backward that computes weight gradients
  // The work before backward, by KeepLevel; for experts, that of kNothing is RouteOp's.
  std::array<LayerWork, 3> recompute;
  double first_bytes = 0;
  // One tile of experts.
  LayerWork experts_forward, experts_backward, experts_weights;
  double experts_first_bytes = 0;
  // The tile that joins experts with a dense unit.
  LayerWork join_forward, join_backward, join_weights;
  double join_first_bytes = 0;
};
// The work of the compute lane for a micro-batch of `micro_batch_tokens` tokens. A smaller one
// takes a proportional part. The work is all 0 if durations do not matter. With pairs
// `micro_batch_tokens` is needed even then (PipelineShape::loss_bytes).
struct StepWork {
  int64_t micro_batch_tokens = 1;
  LayerWork embed_forward, embed_backward;
  std::vector<StageStepWork> stages;  // by stage; empty: nothing is counted
  LayerWork head, head_loss;
  LayerWork head_weights;  // the part of head that computes weight gradients
  double embed_first_bytes = 0, head_first_bytes = 0;

  const StageStepWork& stage(int index) const {
    static const StageStepWork none;
    return stages.empty() ? none : stages[static_cast<size_t>(index)];
  }
};

// The tiles of a stage (ModelLayout::stages).
struct StageShape {
  int tile = 0;
  int expert_tiles = 0;  // tiles of experts, which follow `tile`; 0: dense, or an attention half
  bool joins = false;    // a tile that joins experts with a dense unit follows the expert tiles

  bool has_experts() const { return expert_tiles > 0; }
  int last_expert_tile() const { return tile + expert_tiles; }
  int last_tile() const { return last_expert_tile() + (joins ? 1 : 0); }
};

// The model's shape and the plan's decisions as plain numbers, from which schedules are built.
struct PipelineShape {
  int ranks = 1;  // the number of ranks that share a step
  int rank = 0;   // the rank whose schedule is built
  int folds = 1;  // left folds of this rank's part of a gradient; a power of two
  // Each rank loads whole tiles, and gathers none. REQUIRES: there are several ranks, all in one
  // process.
  bool whole_loads = false;
  std::vector<StageShape> stages;
  bool tied = false;  // tile 0 is embedding and head; else the last tile is the head
  std::vector<int64_t> tile_elements;
  // How many of each tile's elements, the last ones, have no gradient and no state (TileLayout).
  // Empty: all are 0.
  std::vector<int64_t> stateless_elements;
  // True if the embedding's matrix (a tied one is the head's too) or the norm beside it, which
  // layers share, is trained.
  bool embedding_trained = true;
  int64_t weight_element_bytes = 4;    // streamed
  int64_t gradient_element_bytes = 4;  // across the link, final gradient
  int weight_buffers = 2;
  // Slab i is tile i's, as clipping and several sweeps need it. Otherwise slabs take turns.
  bool slab_per_tile = true;
  int gradient_slabs = 4;  // how many there are; tiles() with slab_per_tile
  bool clipping = true;
  bool stash_on_host = false;
  // The most micro-batches of a sweep. REQUIRES: a step has no more than sweeps_max sweeps.
  int sweep_micro_batches = 1;
  // Pairs (stage without experts, micro-batch in the sweep), counted from the last stage back. The
  // first `kept_everything` keep all. Those from there to `kept` recompute the cheap pieces. The
  // rest recompute the stage. Experts keep nothing.
  int kept_everything = 0;
  int kept = 0;
  // AdamW runs on the device for the last `device_update_parts` of kUpdateParts equal parts of
  // the rank's shard of every tile but the embedding's, in pieces of `device_piece_elements` (a
  // multiple of kUpdateAlignment). It runs on the host for the rest. The bits are the same.
  int device_update_parts = 0;
  // Replaces device_update_parts for tile 1 with clipping. Tile 1 has its own number because the
  // next step's first layer waits for its update alone. The link is free then, and the gradient of
  // the device's part is still in the accumulator.
  int first_tile_device_parts = 0;
  int64_t device_piece_elements = int64_t{2} << 20;
  // The forward pass reads the embedding's rows from host memory. The embedding's tile is then not
  // loaded for it, and the rows of the next batch are updated ahead of the others. REQUIRES: there
  // is one rank, since others update rows too.
  bool embedding_from_host = false;
  // The estimated elements of the rows that a batch looks up. Used for predicted durations only.
  int64_t row_elements = 0;
  int64_t hidden_bytes_per_token = 0;  // hidden states of a token at one boundary
  // The objective compares pairs of answers (training.objective: dpo).
  bool pairs = false;
  StepWork work;

  // --- Sizes.

  // Returns the most sweeps of a step:
  // - one for several ranks, since a partial sum would take a slab of a whole tile for each;
  // - one for several folds of a tied model, since the tied tile's folds rest in accumulators until
  //   the embedding's gradient;
  // - two for several folds of another model, each with half of them: one sum rests in between;
  // - any number otherwise.
  int sweeps_max() const {
    if (folds > 1) return ranks > 1 || tied ? 1 : 2;
    return ranks > 1 ? 1 : std::numeric_limits<int>::max();
  }
  int stage_count() const { return static_cast<int>(stages.size()); }
  // Returns the number of stages that may keep activations, of `stage` and those after it.
  int keeping_stages(int stage) const {
    return static_cast<int>(std::count_if(stages.begin() + stage, stages.end(),
                                          [](const StageShape& s) { return !s.has_experts(); }));
  }
  bool has_experts() const { return keeping_stages(0) < stage_count(); }
  int tiles() const { return static_cast<int>(tile_elements.size()); }
  // Returns the pairs that so many tokens hold at most. Each of the two answers has a token that
  // is predicted, and one before it.
  int64_t pairs_max(int64_t tokens) const { return pairs ? tokens / 4 : 0; }
  // Returns the bytes that the head writes for a micro-batch's losses: their sum, or the results of
  // pairs.
  int64_t loss_bytes() const {
    return pairs ? pairs_max(work.micro_batch_tokens) * int64_t{sizeof(PreferenceResult)}
                 : int64_t{sizeof(double)};
  }
  int head_tile() const { return tied ? 0 : tiles() - 1; }
  // Returns the number of a tile's first elements, which have a gradient and state. A tile without
  // any is loaded, but it has no gradient operations and no updates.
  int64_t state_elements(int tile) const {
    return tile_elements[tile] - (stateless_elements.empty() ? 0 : stateless_elements[tile]);
  }
  // --- Cuts of tiles, all in elements of the whole tile.

  // A tile is cut into even blocks, one for each fold of all ranks. The norm is summed over blocks.
  // Block i is [block_cut(tile, i), block_cut(tile, i + 1)), and may be empty.
  int blocks() const { return ranks * folds; }
  int64_t block_cut(int tile, int i) const {
    const int64_t elements = state_elements(tile);
    return i == blocks() ? elements : elements * i / blocks() / kUpdateAlignment * kUpdateAlignment;
  }
  // Rank r updates the elements [shard_cut(tile, r), shard_cut(tile, r + 1)), which are as many
  // blocks as it has folds.
  int64_t shard_cut(int tile, int r) const { return block_cut(tile, r * folds); }
  int64_t shard_begin(int tile) const { return shard_cut(tile, rank); }
  int64_t shard_end(int tile) const { return shard_cut(tile, rank + 1); }
  int64_t shard_elements(int tile) const { return shard_end(tile) - shard_begin(tile); }
  // Rank r holds those of a tile's elements without state that begin at stateless_cut(tile, r), up
  // to those of the next rank.
  int64_t stateless_cut(int tile, int r) const {
    const int64_t begin = state_elements(tile), end = tile_elements[tile];
    if (r == ranks) return end;
    return begin + (end - begin) * r / ranks / kUpdateAlignment * kUpdateAlignment;
  }
  int64_t stateless_held(int tile) const {  // by this rank
    return stateless_cut(tile, rank + 1) - stateless_cut(tile, rank);
  }
  // Returns the elements of the tile's largest shard.
  int64_t shard_elements_max(int tile) const {
    int64_t elements = 0;
    for (int r = 0; r < ranks; ++r) {
      elements = std::max(elements, shard_cut(tile, r + 1) - shard_cut(tile, r));
    }
    return elements;
  }
  // --- The reach of the backward pass.

  // Returns true if a tensor of the stage is trained.
  bool trains(const StageShape& stage) const {
    for (int tile = stage.tile; tile <= stage.last_tile(); ++tile) {
      if (state_elements(tile) > 0) return true;
    }
    return false;
  }
  // Returns the lowest stage that the backward pass reaches: the embedding or a tensor of this
  // stage is trained. stage_count() if the head alone is trained.
  int lowest_stage() const {
    if (embedding_trained) return 0;
    int stage = 0;
    while (stage < stage_count() && !trains(stages[static_cast<size_t>(stage)])) ++stage;
    return stage;
  }
  // Returns true if anything before stage `stage` is trained (before the head for stage_count()),
  // so that the gradient of the stage's input is needed.
  bool trains_before(int stage) const { return embedding_trained || lowest_stage() < stage; }
  // Returns the number of stages that the backward pass reaches.
  int backward_stages() const { return stage_count() - lowest_stage(); }
  // --- Updates.

  // Returns how many of the kUpdateParts of the tile's shard the device updates.
  int device_parts(int tile) const {
    if (tile == 0) return 0;
    return tile == 1 && clipping ? first_tile_device_parts : device_update_parts;
  }
  // The host updates the elements [shard_begin, host_end) of a tile, the device the rest of the
  // shard.
  int64_t host_end(int tile) const {
    const int parts = device_parts(tile);
    if (parts == 0) return shard_end(tile);
    return shard_begin(tile) + shard_elements(tile) * (kUpdateParts - parts) / kUpdateParts /
                                   kUpdateAlignment * kUpdateAlignment;
  }
  // Returns true if the next step's loads begin with tile 1, because the embedding is read from
  // host memory, and wait for its update, because of clipping. The update is then cut into parts.
  bool first_tile_leads() const { return clipping && embedding_from_host; }
  // Returns true if the device leaves the updated weights of tile 1 in a weight buffer, where the
  // next step uses them.
  bool first_tile_in_buffer() const { return first_tile_leads() && updates_on_device(1); }
  // Returns the number of parts in which the host updates a tile. A tile that leads has several, so
  // that one part is loaded while the next is updated. Part i has the elements [host_cut(tile, i),
  // host_cut(tile, i + 1)).
  int host_parts(int tile) const { return tile == 1 && first_tile_leads() ? kFirstTileParts : 1; }
  int64_t host_cut(int tile, int part) const {
    const int64_t begin = shard_begin(tile), elements = host_end(tile) - begin;
    if (part == host_parts(tile)) return host_end(tile);
    return begin + elements * part / host_parts(tile) / kUpdateAlignment * kUpdateAlignment;
  }
  // Return indices of resources. host_part is the index in kTileWeights of host part `part`. The
  // moments of all host parts have the index `tile`. device_part is the index in kTileWeights and
  // kTileMoments of what the device updates. REQUIRES: part == 0 or tile == 1.
  int host_part(int tile, int part) const { return part == 0 ? tile : 2 * tiles() + part; }
  int device_part(int tile) const { return tiles() + tile; }
  Resource host_norm(int step_slot, int tile) const {
    return {ResourceKind::kHostNorm, step_slot * tiles() + tile};
  }
  bool updates_on_device(int tile) const { return host_end(tile) < shard_end(tile); }
  // Returns true if the device updates a part of some tile.
  bool updates_on_device() const {
    return device_update_parts > 0 || (clipping && first_tile_device_parts > 0);
  }
  // --- Slots and accumulators.

  // Return slots of the stash on the host. It holds the inputs of every stage that the backward
  // pass reaches. For a tied model with several sweeps it also holds the gradients of the
  // embedding's output, of all sweeps but the last (see StepBuilder::EmbedBackward).
  int stash_slot(int stage, int sweep_index) const {
    return stage * sweep_micro_batches + sweep_index;
  }
  int embedding_stash_slot(int micro_batch) const {
    return stage_count() * sweep_micro_batches + micro_batch;
  }
  // Returns the number of accumulators. Two take turns. A tied tile has one for each fold, which
  // stay from the head's backward to the embedding's. The folds of other tiles are joined as soon
  // as there are two of a size, so that they need one for each level of the tree in turn.
  int accumulators() const {
    return first_level_accumulator() + std::bit_width(static_cast<unsigned>(folds)) - 1;
  }
  // Returns the first of the accumulators that hold folds until they are joined. Those before it
  // are the two that take turns, and a tied tile's.
  int first_level_accumulator() const { return 2 + (tied ? folds : 0); }
  bool is_tied_accumulator(int index) const {
    return tied && index >= 2 && index < first_level_accumulator();
  }
  // Returns the accumulator of fold `fold` of a gradient: `main`, where the whole will be, for fold
  // 0, else that of a level of the tree, by how many folds before this one are not joined yet. With
  // four folds, 1 and 2 take the first level's in turn, and 3 the second's while 2 waits for it.
  int fold_accumulator(int main, int fold) const {
    if (is_tied_accumulator(main)) return main + fold;
    const int level =
        std::popcount(static_cast<unsigned>(fold));  // folds before it that are not joined
    return level == 0 ? main : first_level_accumulator() + level - 1;
  }
  // Returns the number of device slots for hidden states. With the stash on the device every
  // boundary that the backward pass reads has slots, and two at least. Boundaries before these take
  // the slots of the first two in turn. Otherwise there is a ring with the slots of one boundary
  // and two more, so that outputs do not wait for the copy of the inputs just used.
  int hidden_slots() const {
    return stash_on_host ? sweep_micro_batches + 2
                         : std::max(backward_stages() + 1, 2) * sweep_micro_batches;
  }
};

// The state of buffers between one schedule and the next. A default-constructed one means that the
// buffers hold nothing.
struct PipelineState {
  std::vector<int> buffer_tile;  // the tile whose present weights a buffer holds; -1 if none
  // The buffer of tile 1 holds only the elements that the device updated (first_tile_in_buffer).
  bool first_tile_partly = false;
  int next_slab = 0;
  int next_accumulator = 0;
  int next_step_slot = 0;
  // By tile: all ranks are known to have updated it (whole_loads). A tile beyond the end is not.
  std::vector<bool> updates_awaited;
  // The previous step updates the rows of this step's batch ahead of others (embedding_from_host).
  // The caller sets it before it builds a step (StepRunner::RequestRowsFirst).
  bool rows_first = true;
};

// The most steps in flight. Each has a slot for its batch and its results.
inline constexpr int kStepSlots = 2;

// Builds this rank's part of a training step. The rank has micro-batches with `micro_batch_tokens`
// tokens, or none. All ranks together have `step_micro_batches`; 0 means that each has as many as
// this one. Changes `state` to what the next schedule finds. The same arguments and the same
// `state` give the same schedule. REQUIRES: schedules built with one `state` have the same `shape`,
// which is used during the call only, and run in the order in which they were built; each
// micro-batch has at most the tokens of the plan; the rank's part is that of PartOfBatch
// (engine/data/sequences/batch.h).
Schedule BuildTrainingStep(const PipelineShape& shape,
                           const std::vector<int64_t>& micro_batch_tokens, PipelineState& state,
                           int step_micro_batches = 0);

// Builds a forward pass that stores the losses of all ranks. `state` and REQUIRES are as for
// BuildTrainingStep.
Schedule BuildEvaluation(const PipelineShape& shape, const std::vector<int64_t>& micro_batch_tokens,
                         PipelineState& state);

// Builds a forward pass that gives logits, with a key-value cache or without. The tiles with which
// the next such pass begins are loaded at its end. `state` and REQUIRES are as for
// BuildTrainingStep, except that each rank has all micro-batches.
Schedule BuildPrediction(const PipelineShape& shape, const std::vector<int64_t>& micro_batch_tokens,
                         CacheUse cache, PipelineState& state);

// Builds the saving of every tile, after its pending update and before its next one. Submit it
// behind the step to be saved and before the next one.
Schedule BuildCheckpoint(const PipelineShape& shape);
// Builds the operation that makes the saved tiles a checkpoint. It is a schedule of its own because
// the step's record must be on disk before it runs. Submit it behind BuildCheckpoint's.
Schedule BuildCheckpointEnd();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_SCHEDULE_H_

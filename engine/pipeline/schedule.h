// A step as data: operations on lanes, with the resources each reads and writes. Nothing here runs
// anything.
//
// The order of `Schedule::ops` is a serial order that is right by itself; dependency_tracker.h
// derives from it, and from the resources, what must wait for what when the lanes run side by side.
// So a load is listed as early as its buffer's last reader allows, and the lane runs ahead as far
// as the resources let it.
//
// A training step is layer-major: all micro-batches of a sweep go through a tile before the next
// tile is needed. A step is one sweep or several.
// - The gradient of a tile is one left fold over chunks of tokens, then micro-batches, then sweeps.
//   Between sweeps its sum rests in a slab as FP32. So the bits do not depend on the number of
//   sweeps.
// - Tiles are loaded weight_buffers - 1 uses ahead. A tile that a buffer still holds, as at the
// turn
//   from forward to backward, is not loaded again.
// - With a stash on the host, the inputs of a layer's backward are loaded while the layer behind it
//   computes, ahead of a tile that waits for a buffer.
// - A tied embedding and head are one tile. Its accumulator stays on the device from the head's
//   backward to the embedding's. It is loaded for the head, and for the embedding's forward too
//   where that cannot read host memory (embedding_from_host).
// - A checkpoint does not drain the lanes: the io lane writes a tile after one update and before
//   the next, which waits for the write. An evaluation does: the trainer waits for all steps first.
#ifndef MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_H_
#define MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "engine/model/activations.h"
#include "engine/model/layer_work.h"
#include "engine/pipeline/lane.h"

namespace megatrain {

enum class ResourceKind {
  // Index: tile, of the elements that the host updates; tiles + tile, of those that the device
  // does; host_part(1, i), of those of tile 1 that the host updates in part i.
  kTileWeights,     // the section that is streamed
  kTileMoments,     // remainder and moments
  kEmbeddingRows,   // of tile 0's weights, the rows that the step's batch looks up
  kWeightBuffer,    // device
  kFirstTile,       // device, what is loaded beside tile 1's update in a weight buffer
  kAccumulator,     // device, FP32 gradient of one tile, and its sum of squares
  kSlab,            // host, gradient of one tile
  kHidden,          // device, hidden states of one micro-batch at one boundary
  kHiddenGradient,  // device, index: micro-batch in the sweep
  kHostStash,       // host, index: layer * sweep + micro-batch in the sweep
  kKept,            // device, kept activations of one layer and micro-batch
  kScratch,         // device, what one layer needs for one micro-batch, and the head's chunk
  kDeviceBatch,     // device, ids and targets; index: step slot
  kDeviceLosses,    // device, sums of losses; index: step slot
  kHostLosses,      // host; index: step slot
  kHostNorm,        // host; index: step slot * tiles + tile
  kUpdateFlag,      // host, whether the device's update of a tile can be trusted; index: tile
  kClip,            // host, the step's clipping coefficient; index: step slot
  kCheckpoint,      // disk
};

struct Resource {
  ResourceKind kind;
  int index = 0;
};

enum class OpKind {
  // h2d
  kUploadBatch,
  kLoadTile,            // tile -> weight_buffer
  kLoadStash,           // host stash -> input_slot
  kLoadPartial,         // slab -> accumulator: the sum over earlier sweeps
  kLoadHiddenGradient,  // host stash -> output_slot
  // compute
  kEmbedForward,  // -> output_slot
  kLayerForward,  // input_slot -> output_slot
  kHead,          // input_slot -> losses, hidden gradient, accumulator
  kHeadLoss,      // input_slot -> losses (evaluation)
  kLayerBackward,
  kEmbedBackward,   // from the hidden gradient, or from input_slot
  kFinishGradient,  // sum of squares; BF16 rounding
  // d2h
  kStoreStash,  // input_slot -> host stash
  kStoreNorm,
  kStoreGradient,
  kStorePartial,
  kStoreHiddenGradient,  // -> host stash
  kStoreLosses,
  // update
  kCheckLosses,   // stops the step before a non-finite loss reaches an update
  kClip,          // the norm is known: the coefficient of the step
  kUpdateRows,    // of the embedding, those that the next step's batch looks up
  kUpdateTile,    // what of the tile the host updates, and kUpdateRows has not
  kCheckUpdates,  // stops before what the device updated can reach a checkpoint
  // device update
  kBeginDeviceUpdate,
  kDeviceUpdate,  // a piece of a tile: its state in, AdamW, its state out
  kEndDeviceUpdate,
  // io
  kSaveTile,
  kFinishCheckpoint,
};

// "load tile", "layer forward", ...: for messages and traces.
const char* OpKindName(OpKind kind);
// Whether it changes the model: a step none of whose operations that do has begun can be given up.
bool ChangesState(OpKind kind);

struct Op {
  OpKind kind;
  Lane lane;
  int step_slot = 0;  // which of the two steps in flight
  int tile = -1;
  int layer = -1;
  int micro_batch = -1;  // in the step
  int sweep_index = -1;  // the same within its sweep
  int weight_buffer = -1;
  int accumulator = -1;
  int slab = -1;
  int input_slot = -1;
  int output_slot = -1;
  int stash_slot = -1;
  int kept_slot = -1;  // -1: nothing kept
  KeepLevel keep = KeepLevel::kNothing;
  bool first = false;  // writes the accumulator instead of adding: the first of a tile's gradient
  // kLoadTile, kLoadPartial, kUpdateTile, kDeviceUpdate: the tile's elements [begin, end).
  int64_t begin = 0, end = 0;
  int64_t bytes = 0;  // copied, updated, saved, or cleared: over the lane's rate its duration
  LayerWork work;     // on the compute lane, where it takes the place of bytes
  // On lanes that are not the link's: what crosses it all the same.
  int64_t h2d_bytes = 0, d2h_bytes = 0;
  absl::InlinedVector<Resource, 4> reads;
  absl::InlinedVector<Resource, 3> writes;
};

struct Schedule {
  std::vector<Op> ops;
};

// Of an element's state in a tile: weight, remainder and moments, or master and moments.
inline constexpr int64_t kStateElementBytes = 12;
inline constexpr int kUpdateParts = 64;
// The host updates tile 1 in so many parts, of which some go ahead of the embedding's rows.
inline constexpr int kFirstTileParts = 8;
inline constexpr int kFirstTilePartsAhead = 4;
// Elements between the places at which a tile's update may be cut: whole cache lines of every
// section.
inline constexpr int64_t kUpdateAlignment = 128;

// What one micro-batch of `micro_batch_tokens` tokens takes of the compute lane; another takes its
// part of it. All 0: durations do not matter.
struct StepWork {
  int64_t micro_batch_tokens = 1;
  LayerWork embed_forward, embed_backward;
  LayerWork layer_forward;
  LayerWork layer_backward;            // with everything kept
  std::array<LayerWork, 3> recompute;  // before it, by KeepLevel
  LayerWork head, head_loss;
  // Device bytes by which the first micro-batch of a gradient differs from the others.
  double embed_first_bytes = 0, layer_first_bytes = 0, head_first_bytes = 0;
};

// What a schedule is built from: the model's shape and the plan's decisions, as plain numbers.
struct PipelineShape {
  int layers = 0;
  bool tied = false;  // tile 0 is embedding and head; else tile 0, layers 1..L, head L + 1
  std::vector<int64_t> tile_elements;
  int64_t weight_element_bytes = 4;    // streamed
  int64_t gradient_element_bytes = 4;  // across the link, final gradient
  int weight_buffers = 2;
  bool slab_per_tile =
      true;  // with clipping or several sweeps: slab i is tile i's; else slabs take turns
  int gradient_slabs = 4;
  bool clipping = true;
  bool stash_on_host = false;
  int sweep_micro_batches = 1;  // micro-batches a sweep at most
  // Pairs (layer, micro-batch in the sweep), counted from the last layer back: the first
  // `kept_everything` keep all, those up to `kept` recompute the cheap pieces, the rest recompute
  // the layer.
  int kept_everything = 0;
  int kept = 0;
  // AdamW runs on the device for the last `device_update_parts` of kUpdateParts equal parts of
  // every tile but the embedding's, in pieces of `device_piece_elements` (a multiple of
  // kUpdateAlignment), and on the host for the rest. The bits are the same.
  int device_update_parts = 0;
  // With clipping, tile 1's instead: the next step's first layer waits for its update alone, while
  // the link is free for the device's part, whose gradient lies in the accumulator still.
  int first_tile_device_parts = 0;
  int64_t device_piece_elements = int64_t{2} << 20;
  // The forward pass reads the embedding's rows where they lie, in host memory: its tile is not
  // loaded for that, and the rows of the next batch are updated ahead of the rest.
  bool embedding_from_host = false;
  // Elements of the rows that a batch looks up. For the duration model alone.
  int64_t row_elements = 0;
  int64_t hidden_bytes_per_token = 0;  // of one boundary
  StepWork work;

  int tiles() const { return static_cast<int>(tile_elements.size()); }
  int head_tile() const { return tied ? 0 : tiles() - 1; }
  // Of kUpdateParts of the tile, those that the device updates.
  int device_parts(int tile) const {
    if (tile == 0) return 0;
    return tile == 1 && clipping ? first_tile_device_parts : device_update_parts;
  }
  // Of the tile's elements, those before this are updated on the host, the others on the device.
  int64_t host_elements(int tile) const {
    const int64_t elements = tile_elements[tile];
    const int parts = device_parts(tile);
    if (parts == 0) return elements;
    return elements * (kUpdateParts - parts) / kUpdateParts / kUpdateAlignment * kUpdateAlignment;
  }
  // Tile 1 is what the next step loads first, and cannot begin without.
  bool first_tile_leads() const { return clipping && embedding_from_host; }
  // Then the device updates its elements in a weight buffer, where that step finds them.
  bool first_tile_in_buffer() const { return first_tile_leads() && updates_on_device(1); }
  // And the host updates its own in parts, so that one is loaded while the next is updated. Part i
  // of a tile has its elements [host_cut(tile, i), host_cut(tile, i + 1)).
  int host_parts(int tile) const { return tile == 1 && first_tile_leads() ? kFirstTileParts : 1; }
  int64_t host_cut(int tile, int part) const {
    const int64_t elements = host_elements(tile);
    if (part == host_parts(tile)) return elements;
    return elements * part / host_parts(tile) / kUpdateAlignment * kUpdateAlignment;
  }
  // Indices of resources.
  int host_part(int tile, int part) const { return part == 0 ? tile : 2 * tiles() + part; }
  int device_part(int tile) const { return tiles() + tile; }
  Resource host_norm(int step_slot, int tile) const {
    return {ResourceKind::kHostNorm, step_slot * tiles() + tile};
  }
  bool updates_on_device(int tile) const { return host_elements(tile) < tile_elements[tile]; }
  bool updates_on_device() const {
    return device_update_parts > 0 || (clipping && first_tile_device_parts > 0);
  }
  // Host slots: the inputs of every layer; then, tied with several sweeps, the gradients by the
  // embedding's output of all sweeps but the last (see StepBuilder::EmbedBackward).
  int stash_slot(int layer, int sweep_index) const {
    return layer * sweep_micro_batches + sweep_index;
  }
  int embedding_stash_slot(int micro_batch) const {
    return layers * sweep_micro_batches + micro_batch;
  }
  // Two take turns; the tied tile's stays from the head's backward to the embedding's.
  int accumulators() const { return tied ? 3 : 2; }
  // Device slots for hidden states: every boundary (stash on the device), or a ring of one boundary
  // and two more, so that outputs do not wait for the copy of the inputs just used.
  int hidden_slots() const {
    return stash_on_host ? sweep_micro_batches + 2 : (layers + 1) * sweep_micro_batches;
  }
};

// What a step leaves for the next one.
struct PipelineState {
  std::vector<int> buffer_tile;  // which tile's present weights a buffer holds; -1: none
  // The buffer that holds tile 1 has only what the device updated there (first_tile_in_buffer).
  bool first_tile_partly = false;
  int next_slab = 0;
  int next_accumulator = 0;
  int next_step_slot = 0;
  // The step before updates the rows of this step's batch ahead of the rest (embedding_from_host).
  bool rows_first = true;
};

inline constexpr int kStepSlots = 2;

// One training step over micro-batches of `micro_batch_tokens`. Pure: the same arguments give the
// same schedule.
Schedule BuildTrainingStep(const PipelineShape& shape,
                           const std::vector<int64_t>& micro_batch_tokens, PipelineState& state);

// Forward only, losses stored.
Schedule BuildEvaluation(const PipelineShape& shape, const std::vector<int64_t>& micro_batch_tokens,
                         PipelineState& state);

// Saves every tile after its pending update and before its next one.
Schedule BuildCheckpoint(const PipelineShape& shape);
// Makes the saved tiles a checkpoint. Apart, so that what must be on disk before (the step's
// record) can be.
Schedule BuildCheckpointEnd();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_H_

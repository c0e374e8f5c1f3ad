#include "tests/engine/pipeline/op_access.h"

#include <algorithm>

namespace megatrain {
namespace {

using enum ResourceKind;
using Resources = OpAccess::Resources;

// The resource that stands for part `part` of the tile's elements that the host updates. The first
// layer's weights may have several.
int HostPart(const PipelineShape& shape, int tile, int part) {
  return part == 0 ? tile : 2 * shape.tiles() + part;
}

// The parts of the tile that elements [begin, end) lie in: what the host updates, and what the
// device does.
Resources Parts(const PipelineShape& shape, ResourceKind kind, int tile, int64_t begin,
                int64_t end) {
  Resources parts;
  for (int part = 0; part < shape.host_parts(tile); ++part) {
    const int64_t overlap =
        std::min(end, shape.host_cut(tile, part + 1)) - std::max(begin, shape.host_cut(tile, part));
    if (overlap <= 0) continue;
    parts.insert({kind, kind == kTileWeights ? HostPart(shape, tile, part) : tile});
  }
  if (end > shape.host_elements(tile)) parts.insert({kind, shape.tiles() + tile});
  return parts;
}

// StashData and EmbeddingStashData: hidden states of every layer and micro-batch in the sweep, then
// the gradients that are put by, one a micro-batch.
int StashIndex(const Op& op, const PipelineShape& shape) {
  return op.layer * shape.sweep_micro_batches + op.sweep_index;
}
int EmbeddingStashIndex(const Op& op, const PipelineShape& shape) {
  return shape.layers * shape.sweep_micro_batches + op.micro_batch;
}

// The norms are an array a step slot with one number a tile.
int Norm(const Op& op, const PipelineShape& shape, int tile) {
  return op.step_slot * shape.tiles() + tile;
}

// The gradient of a piece that the device updates.
std::pair<ResourceKind, int> DeviceGradient(const Op& op) {
  return op.slab >= 0 ? std::pair(kSlab, op.slab) : std::pair(kAccumulator, op.accumulator);
}

const Op& FirstPiece(const Schedule& schedule, size_t begin) {
  return *std::find_if(schedule.ops.begin() + static_cast<ptrdiff_t>(begin), schedule.ops.end(),
                       [](const Op& op) { return op.kind == OpKind::kDeviceUpdate; });
}

// Tile 1 is loaded into a buffer that the device updates its own elements in: those are not loaded,
// though they are not the host's.
bool LoadsBesideUpdate(const Schedule& schedule, size_t at, const PipelineShape& shape) {
  if (schedule.ops[at].tile != 1 || !shape.first_tile_in_buffer()) return false;
  int64_t end = 0;
  for (; schedule.ops[at].kind == OpKind::kLoadTile && schedule.ops[at].tile == 1; ++at) {
    end = schedule.ops[at].end;
  }
  return end < shape.tile_elements[1];
}

// AdamW on the host: the gradient in the slab, the tile's norm, which is checked first, and with
// clipping the coefficient. The losses are known before anything of the step is changed.
OpAccess HostUpdate(const Op& op, const PipelineShape& shape) {
  OpAccess access;
  access.reads = {
      {kSlab, op.slab}, {kHostNorm, Norm(op, shape, op.tile)}, {kHostLosses, op.step_slot}};
  if (shape.clipping) access.reads.insert({kClip, op.step_slot});
  access.writes = {{kTileWeights, op.tile}, {kTileMoments, op.tile}};
  return access;
}

}  // namespace

OpAccess AccessOf(const Schedule& schedule, size_t at, const PipelineShape& shape,
                  bool embedding_rows) {
  const Op& op = schedule.ops[at];
  const std::pair buffer(kWeightBuffer, op.weight_buffer);
  const std::pair accumulator(kAccumulator, op.accumulator);
  const std::pair slab(kSlab, op.slab);
  const std::pair input(kHidden, op.input_slot);
  const std::pair output(kHidden, op.output_slot);
  const std::pair hidden_gradient(kHiddenGradient, op.sweep_index);
  const std::pair batch(kDeviceBatch, op.step_slot);
  const std::pair losses(kDeviceLosses, op.step_slot);
  const std::pair scratch(kScratch, 0);
  OpAccess access;
  switch (op.kind) {
    case OpKind::kUploadBatch:
      return {{}, {batch}};
    case OpKind::kLoadTile:
      return {Parts(shape, kTileWeights, op.tile, op.begin, op.end),
              {LoadsBesideUpdate(schedule, at, shape) ? std::pair(kFirstTile, 0) : buffer}};
    case OpKind::kLoadStash:
      return {{{kHostStash, StashIndex(op, shape)}}, {output}};
    case OpKind::kLoadPartial:
      return {{slab}, {accumulator}};
    case OpKind::kLoadHiddenGradient:
      return {{{kHostStash, EmbeddingStashIndex(op, shape)}}, {output}};
    case OpKind::kEmbedForward:
      access = {{batch}, {output}};
      if (op.weight_buffer >= 0) {
        access.reads.insert(buffer);
      } else {
        // The tile itself in host memory.
        access.reads.insert({embedding_rows ? kEmbeddingRows : kTileWeights, 0});
      }
      return access;
    case OpKind::kLayerForward:
      access = {{buffer, batch, input}, {output, scratch}};
      if (op.kept_slot >= 0) access.writes.insert({kKept, op.kept_slot});
      // Weights came there beside the update of the step before.
      if (op.tile == 1 && shape.first_tile_in_buffer()) access.reads.insert({kFirstTile, 0});
      return access;
    case OpKind::kHead:
      // The head's chunk and the tokens' losses are scratch; their sum is the step's.
      return {{buffer, batch, input}, {hidden_gradient, accumulator, scratch, losses}};
    case OpKind::kHeadLoss:
      return {{buffer, batch, input}, {scratch, losses}};
    case OpKind::kLayerBackward:
      // What was kept is overwritten.
      access = {{buffer, batch, input}, {hidden_gradient, accumulator, scratch}};
      if (op.kept_slot >= 0) access.writes.insert({kKept, op.kept_slot});
      return access;
    case OpKind::kEmbedBackward:
      return {{batch, op.input_slot >= 0 ? input : hidden_gradient}, {accumulator}};
    case OpKind::kFinishGradient:
      return {{}, {accumulator}};
    case OpKind::kStoreStash:
      return {{input}, {{kHostStash, StashIndex(op, shape)}}};
    case OpKind::kStoreNorm:
      return {{accumulator}, {{kHostNorm, Norm(op, shape, op.tile)}}};
    case OpKind::kStoreGradient:
    case OpKind::kStorePartial:
      return {{accumulator}, {slab}};
    case OpKind::kStoreHiddenGradient:
      return {{hidden_gradient}, {{kHostStash, EmbeddingStashIndex(op, shape)}}};
    case OpKind::kStoreLosses:
      return {{losses}, {{kHostLosses, op.step_slot}}};
    case OpKind::kCheckLosses:
      return {{{kHostLosses, op.step_slot}}, {}};
    case OpKind::kClip:
      access = {{{kHostLosses, op.step_slot}}, {{kClip, op.step_slot}}};
      for (int tile = 0; tile < shape.tiles(); ++tile) {
        access.reads.insert({kHostNorm, Norm(op, shape, tile)});
      }
      return access;
    case OpKind::kUpdateRows:
      access = HostUpdate(op, shape);
      access.writes.insert({kEmbeddingRows, 0});
      return access;
    case OpKind::kUpdateTile:
      access = HostUpdate(op, shape);
      access.writes = Parts(shape, kTileWeights, op.tile, op.begin, op.end);
      access.writes.insert({kTileMoments, op.tile});
      return access;
    // The pieces of a tile change elements of their own and may run side by side: each is a reader
    // of the device's part of the tile. The two operations around them are its writers. The first
    // waits for what all pieces read: the gradient, and the coefficient.
    case OpKind::kBeginDeviceUpdate:
      access.reads = {DeviceGradient(FirstPiece(schedule, at))};
      if (shape.clipping) access.reads.insert({kClip, op.step_slot});
      access.writes = {{kTileWeights, shape.tiles() + op.tile},
                       {kTileMoments, shape.tiles() + op.tile}};
      if (op.tile == 1 && shape.first_tile_in_buffer()) {
        access.writes.insert({kFirstTile, 0});
        access.writes.insert({kWeightBuffer, FirstPiece(schedule, at).weight_buffer});
      }
      return access;
    case OpKind::kDeviceUpdate:
      access.reads = {DeviceGradient(op)};
      access.reads.merge(Parts(shape, kTileWeights, op.tile, op.begin, op.end));
      access.reads.merge(Parts(shape, kTileMoments, op.tile, op.begin, op.end));
      return access;
    case OpKind::kEndDeviceUpdate:
      access.writes = {{kTileWeights, shape.tiles() + op.tile},
                       {kTileMoments, shape.tiles() + op.tile},
                       {kUpdateFlag, op.tile}};
      if (op.tile == 1 && shape.first_tile_in_buffer()) {
        access.writes.insert({kWeightBuffer, schedule.ops[at - 1].weight_buffer});
      }
      return access;
    case OpKind::kCheckUpdates:
      // Saves of what the device has updated wait for it, by the moments.
      for (int tile = 0; tile < shape.tiles(); ++tile) {
        if (!shape.updates_on_device(tile)) continue;
        access.reads.insert({kUpdateFlag, tile});
        access.reads.insert({kHostNorm, Norm(op, shape, tile)});
        access.writes.insert({kTileMoments, shape.tiles() + tile});
      }
      return access;
    case OpKind::kSaveTile:
      // The whole tile; the host's parts are named also where they are empty.
      access.reads = {{kTileWeights, op.tile}, {kTileMoments, op.tile}};
      for (int part = 1; part < shape.host_parts(op.tile); ++part) {
        access.reads.insert({kTileWeights, HostPart(shape, op.tile, part)});
      }
      access.reads.merge(Parts(shape, kTileWeights, op.tile, 0, shape.tile_elements[op.tile]));
      access.reads.merge(Parts(shape, kTileMoments, op.tile, 0, shape.tile_elements[op.tile]));
      access.writes = {{kCheckpoint, 0}};
      return access;
    case OpKind::kFinishCheckpoint:
      return {{}, {{kCheckpoint, 0}}};
  }
  return access;
}

}  // namespace megatrain

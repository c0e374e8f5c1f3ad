#include "tests/engine/pipeline/schedule/op_access.h"

#include <algorithm>
#include <variant>

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
  // Elements behind the state are not updated, so that they are no resource.
  if (std::max(begin, shape.host_end(tile)) < std::min(end, shape.shard_end(tile))) {
    parts.insert({kind, shape.tiles() + tile});
  }
  return parts;
}

// The hidden states of every layer and micro-batch in the sweep, then the gradients that are put
// by, one a micro-batch (StepRunner::StashData and EmbeddingStashData).
std::pair<ResourceKind, int> Stash(const PipelineShape& shape, int stage, int sweep_index) {
  return {kHostStash, stage * shape.sweep_micro_batches + sweep_index};
}
std::pair<ResourceKind, int> EmbeddingStash(const PipelineShape& shape, int micro_batch) {
  return {kHostStash, shape.stage_count() * shape.sweep_micro_batches + micro_batch};
}

std::pair<ResourceKind, int> Pair(const Resource& resource) {
  return {resource.kind, resource.index};
}
std::pair<ResourceKind, int> Hidden(int slot) { return {kHidden, slot}; }
std::pair<ResourceKind, int> Buffer(int weight_buffer) { return {kWeightBuffer, weight_buffer}; }
std::pair<ResourceKind, int> Accumulator(int index) { return {kAccumulator, index}; }

// Returns the next piece of a device update in the schedule.
const DeviceUpdateOp& NextPiece(const Schedule& schedule, size_t at) {
  while (!schedule.ops[at].is<DeviceUpdateOp>()) ++at;
  return *schedule.ops[at].as<DeviceUpdateOp>();
}

// Tile 1 is loaded into a buffer that the device updates its own elements in: those are not loaded,
// though they are not the host's.
bool LoadsBesideUpdate(const Schedule& schedule, size_t at, const PipelineShape& shape) {
  const auto loads = [&](size_t i) {
    const LoadTileOp* const load = schedule.ops[i].as<LoadTileOp>();
    return load != nullptr && load->tile == 1;
  };
  if (!loads(at) || !shape.first_tile_in_buffer()) return false;
  while (at > 0 && loads(at - 1)) --at;
  for (; loads(at); ++at) {
    if (schedule.ops[at].as<LoadTileOp>()->end == shape.shard_end(1)) return false;
  }
  return true;
}

// Returns the access of operation `at` of a schedule, given its fields.
struct Access {
  const Schedule& schedule;
  const size_t at;
  const PipelineShape& shape;
  const bool embedding_rows;

  const int slot = schedule.ops[at].step_slot;
  const std::pair<ResourceKind, int> batch{kDeviceBatch, slot}, losses{kDeviceLosses, slot},
      host_losses{kHostLosses, slot}, clip{kClip, slot}, scratch{kScratch, 0};

  // The norms are an array a step slot with one number a tile.
  std::pair<ResourceKind, int> Norm(int tile) const {
    return {kHostNorm, slot * shape.tiles() + tile};
  }
  std::pair<ResourceKind, int> DeviceWeights(int tile) const {
    return {kTileWeights, shape.tiles() + tile};
  }
  std::pair<ResourceKind, int> DeviceMoments(int tile) const {
    return {kTileMoments, shape.tiles() + tile};
  }

  OpAccess operator()(const UploadBatchOp&) const { return {{}, {batch}}; }
  OpAccess operator()(const LoadTileOp& op) const {
    OpAccess access = {Parts(shape, kTileWeights, op.tile, op.begin, op.end),
                       {LoadsBesideUpdate(schedule, at, shape) ? std::pair(kFirstTileHostPart, 0)
                                                               : Buffer(op.weight_buffer)}};
    if (shape.whole_loads && op.begin < shape.state_elements(op.tile)) {
      access.reads.insert({kTileOfRanks, op.tile});
    }
    return access;
  }
  OpAccess operator()(const LoadStashOp& op) const {
    return {{Stash(shape, op.stage, op.sweep_index)}, {Hidden(op.output_slot)}};
  }
  OpAccess operator()(const LoadPartialOp& op) const {
    return {{{kSlab, op.slab}}, {Accumulator(op.accumulator)}};
  }
  OpAccess operator()(const LoadHiddenGradientOp& op) const {
    return {{EmbeddingStash(shape, op.micro_batch)}, {Hidden(op.output_slot)}};
  }
  OpAccess operator()(const EmbedForwardOp& op) const {
    // Without a buffer the tile itself in host memory.
    return {
        {batch, op.weight_buffer ? Buffer(*op.weight_buffer)
                                 : std::pair(embedding_rows ? kEmbeddingRows : kTileWeights, 0)},
        {Hidden(op.output_slot)}};
  }
  OpAccess operator()(const LayerForwardOp& op) const {
    OpAccess access = {{Buffer(op.weight_buffer), batch, Hidden(op.input_slot)},
                       {Hidden(op.output_slot), scratch}};
    if (op.kept) access.writes.insert({kKept, op.kept->slot});
    if (op.cache != CacheUse::kNone) access.writes.insert({kCache, op.stage});
    // Weights came there beside the update of the step before.
    if (op.stage == 0 && shape.first_tile_in_buffer()) access.reads.insert({kFirstTileHostPart, 0});
    return access;
  }
  OpAccess operator()(const RouteOp& op) const {
    return {{Buffer(op.weight_buffer), Hidden(op.input_slot)},
            {{kRouted, op.sweep_index}, scratch}};
  }
  OpAccess operator()(const ExpertsForwardOp& op) const {
    OpAccess access = {{Buffer(op.weight_buffer)}, {{kRouted, op.sweep_index}, scratch}};
    if (op.last) {
      access.reads.insert(Hidden(op.input_slot));
      access.writes.insert(Hidden(op.output_slot));
    }
    return access;
  }
  OpAccess operator()(const ExpertsBackwardOp& op) const {
    OpAccess access = {{Buffer(op.weight_buffer)}, {{kRouted, op.sweep_index}, scratch}};
    if (!shape.stages[op.stage].joins) access.reads.insert({kHiddenGradient, op.sweep_index});
    if (op.accumulator) access.writes.insert(Accumulator(*op.accumulator));
    return access;
  }
  OpAccess operator()(const RouterBackwardOp& op) const {
    OpAccess access = {{Buffer(op.weight_buffer), Hidden(op.input_slot)},
                       {{kHiddenGradient, op.sweep_index}, {kRouted, op.sweep_index}, scratch}};
    if (op.accumulator) access.writes.insert(Accumulator(*op.accumulator));
    return access;
  }
  OpAccess operator()(const JoinForwardOp& op) const {
    return {{Buffer(op.weight_buffer), Hidden(op.input_slot), {kRouted, op.sweep_index}},
            {Hidden(op.output_slot), scratch}};
  }
  OpAccess operator()(const JoinBackwardOp& op) const {
    OpAccess access = {{Buffer(op.weight_buffer), Hidden(op.input_slot)},
                       {{kHiddenGradient, op.sweep_index}, {kRouted, op.sweep_index}, scratch}};
    if (op.accumulator) access.writes.insert(Accumulator(*op.accumulator));
    return access;
  }
  OpAccess operator()(const HeadOp& op) const {
    // The head's chunk and the tokens' losses are scratch; their sum is the step's.
    OpAccess access = {{Buffer(op.weight_buffer), batch, Hidden(op.input_slot)},
                       {{kHiddenGradient, op.sweep_index}, scratch, losses}};
    if (op.accumulator) access.writes.insert(Accumulator(*op.accumulator));
    return access;
  }
  OpAccess operator()(const HeadLossOp& op) const {
    return {{Buffer(op.weight_buffer), batch, Hidden(op.input_slot)}, {scratch, losses}};
  }
  // Where the tokens are is told by the request.
  OpAccess operator()(const HeadLogitsOp& op) const {
    return {{Buffer(op.weight_buffer), Hidden(op.input_slot)}, {scratch}};
  }
  OpAccess operator()(const LayerBackwardOp& op) const {
    OpAccess access = {{Buffer(op.weight_buffer), batch, Hidden(op.input_slot)},
                       {{kHiddenGradient, op.sweep_index}, scratch}};
    if (op.accumulator) access.writes.insert(Accumulator(*op.accumulator));
    // What was kept is overwritten.
    if (op.kept) access.writes.insert({kKept, op.kept->slot});
    return access;
  }
  OpAccess operator()(const EmbedBackwardOp& op) const {
    return {{batch, Pair(op.hidden_gradient)}, {Accumulator(op.accumulator)}};
  }
  OpAccess operator()(const ZeroGradientOp& op) const {
    return {{}, {Accumulator(op.accumulator)}};
  }
  OpAccess operator()(const JoinGradientsOp& op) const {
    return {{Accumulator(op.addend)}, {Accumulator(op.accumulator)}};
  }
  OpAccess operator()(const FinishGradientOp& op) const {
    return {{}, {Accumulator(op.accumulator)}};
  }
  // A rank tells that its own updates are there, and learns that the others' are.
  OpAccess operator()(const AwaitUpdatesOp& op) const {
    return {Parts(shape, kTileWeights, op.tile, 0, shape.state_elements(op.tile)),
            {{kTileOfRanks, op.tile}}};
  }
  OpAccess operator()(const GatherWeightsOp& op) const { return {{}, {Buffer(op.weight_buffer)}}; }
  OpAccess operator()(const ReduceGradientOp& op) const {
    OpAccess access = {{}, {Accumulator(op.accumulator)}};
    // A rank lets the others update the tile.
    if (shape.whole_loads) access.writes.insert({kTileOfRanks, op.tile});
    return access;
  }
  OpAccess operator()(const StoreStashOp& op) const {
    return {{Hidden(op.input_slot)}, {Stash(shape, op.stage, op.sweep_index)}};
  }
  OpAccess operator()(const StoreNormOp& op) const {
    return {{Accumulator(op.accumulator)}, {Norm(op.tile)}};
  }
  OpAccess operator()(const StoreGradientOp& op) const {
    return {{Accumulator(op.accumulator)}, {{kSlab, op.slab}}};
  }
  OpAccess operator()(const StorePartialOp& op) const {
    return {{Accumulator(op.accumulator)}, {{kSlab, op.slab}}};
  }
  OpAccess operator()(const StoreHiddenGradientOp& op) const {
    return {{{kHiddenGradient, op.sweep_index}}, {EmbeddingStash(shape, op.micro_batch)}};
  }
  OpAccess operator()(const StoreLossesOp&) const { return {{losses}, {host_losses}}; }
  OpAccess operator()(const ShareResultsOp& op) const {
    OpAccess access;
    if (op.losses) access.writes.insert(host_losses);
    for (int tile = 0; op.norms && tile < shape.tiles(); ++tile) {
      if (shape.state_elements(tile) > 0) access.writes.insert(Norm(tile));
    }
    return access;
  }
  OpAccess operator()(const CheckLossesOp&) const { return {{host_losses}, {}}; }
  OpAccess operator()(const ClipOp&) const {
    OpAccess access = {{host_losses}, {clip}};
    for (int tile = 0; tile < shape.tiles(); ++tile) {
      if (shape.state_elements(tile) > 0) access.reads.insert(Norm(tile));
    }
    return access;
  }
  // AdamW on the host: the gradient in the slab, the tile's norm, which is checked first, and with
  // clipping the coefficient. The losses are known before anything of the step is changed.
  OpAccess HostUpdate(int tile, int slab) const {
    OpAccess access = {{{kSlab, slab}, Norm(tile), host_losses}, {{kTileMoments, tile}}};
    if (shape.clipping) access.reads.insert(clip);
    return access;
  }
  OpAccess operator()(const UpdateRowsOp& op) const {
    OpAccess access = HostUpdate(0, op.slab);
    access.writes.insert({{kTileWeights, 0}, {kEmbeddingRows, 0}});
    return access;
  }
  OpAccess operator()(const UpdateTileOp& op) const {
    OpAccess access = HostUpdate(op.tile, op.slab);
    access.writes.merge(Parts(shape, kTileWeights, op.tile, op.begin, op.end));
    return access;
  }
  // The pieces of a tile change elements of their own and may run side by side: each is a reader
  // of the device's part of the tile. The two operations around them are its writers. The first
  // waits for what all pieces read: the gradient, and the coefficient.
  OpAccess operator()(const BeginDeviceUpdateOp& op) const {
    const DeviceUpdateOp& piece = NextPiece(schedule, at);
    OpAccess access = {{Pair(piece.gradient)}, {DeviceWeights(op.tile), DeviceMoments(op.tile)}};
    if (shape.clipping) access.reads.insert(clip);
    if (op.tile == 1 && shape.first_tile_in_buffer()) {
      access.writes.insert({{kFirstTileHostPart, 0}, Buffer(piece.weight_buffer.value())});
    }
    return access;
  }
  OpAccess operator()(const DeviceUpdateOp& op) const {
    OpAccess access = {{Pair(op.gradient)}, {}};
    access.reads.merge(Parts(shape, kTileWeights, op.tile, op.begin, op.end));
    access.reads.merge(Parts(shape, kTileMoments, op.tile, op.begin, op.end));
    return access;
  }
  OpAccess operator()(const EndDeviceUpdateOp& op) const {
    OpAccess access = {{},
                       {DeviceWeights(op.tile), DeviceMoments(op.tile), {kUpdateFlag, op.tile}}};
    if (op.tile == 1 && shape.first_tile_in_buffer()) {
      access.writes.insert(Buffer(NextPiece(schedule, at - 1).weight_buffer.value()));
    }
    return access;
  }
  OpAccess operator()(const CheckUpdatesOp&) const {
    // Saves of what the device has updated wait for it, by the moments.
    OpAccess access;
    for (int tile = 0; tile < shape.tiles(); ++tile) {
      if (!shape.updates_on_device(tile)) continue;
      access.reads.insert({{kUpdateFlag, tile}, Norm(tile)});
      access.writes.insert(DeviceMoments(tile));
    }
    return access;
  }
  OpAccess operator()(const SaveTileOp& op) const {
    // The whole tile; the host's parts are named also where they are empty.
    OpAccess access = {{{kTileWeights, op.tile}, {kTileMoments, op.tile}}, {{kCheckpoint, 0}}};
    for (int part = 1; part < shape.host_parts(op.tile); ++part) {
      access.reads.insert({kTileWeights, HostPart(shape, op.tile, part)});
    }
    access.reads.merge(Parts(shape, kTileWeights, op.tile, 0, shape.tile_elements[op.tile]));
    access.reads.merge(Parts(shape, kTileMoments, op.tile, 0, shape.tile_elements[op.tile]));
    return access;
  }
  OpAccess operator()(const FinishCheckpointOp&) const { return {{}, {{kCheckpoint, 0}}}; }
};

}  // namespace

OpAccess AccessOf(const Schedule& schedule, size_t at, const PipelineShape& shape,
                  bool embedding_rows) {
  return std::visit(Access{schedule, at, shape, embedding_rows}, schedule.ops[at].what);
}

}  // namespace megatrain

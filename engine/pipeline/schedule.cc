#include "engine/pipeline/schedule.h"

namespace megatrain {

const char* OpKindName(OpKind kind) {
  switch (kind) {
    case OpKind::kUploadBatch:
      return "upload batch";
    case OpKind::kLoadTile:
      return "load tile";
    case OpKind::kLoadStash:
      return "load stash";
    case OpKind::kLoadPartial:
      return "load partial gradient";
    case OpKind::kLoadHiddenGradient:
      return "load hidden gradient";
    case OpKind::kStoreHiddenGradient:
      return "store hidden gradient";
    case OpKind::kEmbedForward:
      return "embedding forward";
    case OpKind::kLayerForward:
      return "layer forward";
    case OpKind::kHead:
      return "head";
    case OpKind::kHeadLoss:
      return "head loss";
    case OpKind::kLayerBackward:
      return "layer backward";
    case OpKind::kEmbedBackward:
      return "embedding backward";
    case OpKind::kFinishGradient:
      return "finish gradient";
    case OpKind::kStoreStash:
      return "store stash";
    case OpKind::kStoreNorm:
      return "store gradient norm";
    case OpKind::kStoreGradient:
      return "store gradient";
    case OpKind::kStorePartial:
      return "store partial gradient";
    case OpKind::kStoreLosses:
      return "store losses";
    case OpKind::kCheckLosses:
      return "check losses";
    case OpKind::kClip:
      return "clip";
    case OpKind::kUpdateRows:
      return "update rows";
    case OpKind::kUpdateTile:
      return "update tile";
    case OpKind::kCheckUpdates:
      return "check updates";
    case OpKind::kBeginDeviceUpdate:
      return "begin device update";
    case OpKind::kDeviceUpdate:
      return "device update";
    case OpKind::kEndDeviceUpdate:
      return "end device update";
    case OpKind::kSaveTile:
      return "save tile";
    case OpKind::kFinishCheckpoint:
      return "finish checkpoint";
  }
  return "unknown";
}

bool ChangesState(OpKind kind) {
  return kind == OpKind::kUpdateRows || kind == OpKind::kUpdateTile ||
         kind == OpKind::kBeginDeviceUpdate;
}

Schedule BuildCheckpoint(const PipelineShape& shape) {
  Schedule schedule;
  for (int i = 0; i < shape.tiles(); ++i) {
    // The order of the next step's updates: the first to be updated is written first.
    Op& op = schedule.ops.emplace_back();
    op.kind = OpKind::kSaveTile;
    op.lane = Lane::kIo;
    op.tile = shape.clipping ? i : shape.tiles() - 1 - i;
    op.bytes = shape.tile_elements[op.tile] * 12;
    op.reads = {{ResourceKind::kTileWeights, op.tile}, {ResourceKind::kTileMoments, op.tile}};
    if (shape.updates_on_device(op.tile)) {
      const int device_part = shape.device_part(op.tile);
      op.reads.push_back({ResourceKind::kTileWeights, device_part});
      op.reads.push_back({ResourceKind::kTileMoments, device_part});
    }
    for (int part = 1; part < shape.host_parts(op.tile); ++part) {
      op.reads.push_back({ResourceKind::kTileWeights, shape.host_part(op.tile, part)});
    }
    op.writes = {{ResourceKind::kCheckpoint}};
  }
  return schedule;
}

Schedule BuildCheckpointEnd() {
  Schedule schedule;
  Op& op = schedule.ops.emplace_back();
  op.kind = OpKind::kFinishCheckpoint;
  op.lane = Lane::kIo;
  op.writes = {{ResourceKind::kCheckpoint}};
  return schedule;
}

}  // namespace megatrain

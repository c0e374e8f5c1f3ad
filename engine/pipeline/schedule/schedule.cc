#include "engine/pipeline/schedule/schedule.h"

namespace megatrain {

Schedule BuildCheckpoint(const PipelineShape& shape) {
  Schedule schedule;
  for (int i = 0; i < shape.tiles(); ++i) {
    // The order of the next step's updates: the first to be updated is written first.
    const int tile = shape.clipping ? i : shape.tiles() - 1 - i;
    Op& op = schedule.ops.emplace_back(SaveTileOp{tile}, Lane::kIo);
    op.bytes = shape.shard_elements(tile) * kStateElementBytes +
               shape.stateless_held(tile) * shape.weight_element_bytes;
    op.reads = {{ResourceKind::kTileWeights, tile}, {ResourceKind::kTileMoments, tile}};
    if (shape.updates_on_device(tile)) {
      const int device_part = shape.device_part(tile);
      op.reads.push_back({ResourceKind::kTileWeights, device_part});
      op.reads.push_back({ResourceKind::kTileMoments, device_part});
    }
    for (int part = 1; part < shape.host_parts(tile); ++part) {
      op.reads.push_back({ResourceKind::kTileWeights, shape.host_part(tile, part)});
    }
    op.writes = {{ResourceKind::kCheckpoint}};
  }
  return schedule;
}

Schedule BuildCheckpointEnd() {
  Schedule schedule;
  schedule.ops.emplace_back(FinishCheckpointOp{}, Lane::kIo).writes = {{ResourceKind::kCheckpoint}};
  return schedule;
}

}  // namespace megatrain

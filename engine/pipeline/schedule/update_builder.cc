#include "engine/pipeline/schedule/update_builder.h"

#include <algorithm>

namespace megatrain {

// Read and written for each element but the gradient, which is only read.
int64_t UpdateBuilder::UpdateBytes(int64_t elements) const {
  return elements * (2 * kStateElementBytes + shape_.gradient_element_bytes);
}

int64_t UpdateBuilder::RowElements() const {
  return shape_.embedding_from_host && shape_.embedding_trained
             ? std::min(shape_.row_elements, shape_.state_elements(0))
             : 0;
}

void UpdateBuilder::ShareResults(bool losses, bool norms) {
  if (shape_.ranks == 1) return;
  Op& op = Add(Lane::kUpdate, ShareResultsOp{.losses = losses, .norms = norms});
  if (losses) op.writes.push_back({ResourceKind::kHostLosses, slot_});
  for (int tile = 0; norms && tile < shape_.tiles(); ++tile) {
    if (shape_.state_elements(tile) > 0) op.writes.push_back(shape_.host_norm(slot_, tile));
  }
}

void UpdateBuilder::ClipAndUpdate(int first_accumulator, int first_buffer) {
  ShareResults(/*losses=*/true, /*norms=*/true);
  Op& op = Add(Lane::kUpdate, ClipOp{});
  op.reads = {{ResourceKind::kHostLosses, slot_}};
  for (int tile = 0; tile < shape_.tiles(); ++tile) {
    if (shape_.state_elements(tile) > 0) op.reads.push_back(shape_.host_norm(slot_, tile));
  }
  op.writes = {{ResourceKind::kClip, slot_}};
  // The order in which the next step needs them: tile i's update runs just ahead of its load. The
  // embedding, whose gradient comes last and which is the largest, goes second; where its rows are
  // read from host memory, those of the next batch do, and the rest when nothing waits for it.
  const Resource first_gradient{ResourceKind::kAccumulator, first_accumulator};
  const auto slab = [](int tile) { return Resource{ResourceKind::kSlab, tile}; };
  if (!shape_.embedding_from_host) {
    Update(1, 1, first_gradient);
    Update(0, 0, slab(0));
  } else {
    // By the middle of the first tile the embedding's gradient is there. Its rows are read, and
    // the parts before are loaded, while the tile is still updated.
    if (shape_.updates_on_device(1)) UpdateOnDevice(1, first_gradient, first_buffer);
    for (int part = 0; part < shape_.host_parts(1); ++part) {
      if (part == kFirstTilePartsAhead) UpdateRows(0);
      UpdateOnHost(1, 1, part);
    }
  }
  for (int tile = 2; tile < shape_.tiles(); ++tile) Update(tile, tile, slab(tile));
  if (shape_.embedding_from_host) Update(0, 0, slab(0));
}

void UpdateBuilder::UpdateTile(int tile, int slab, int accumulator) {
  if (tile == 0) UpdateRows(slab);
  Update(tile, slab, {ResourceKind::kAccumulator, accumulator});
}

Op& UpdateBuilder::AddOnHost(const AnyOp& what, int tile, int slab) {
  Op& op = Add(Lane::kUpdate, what);
  op.reads = {{ResourceKind::kSlab, slab},
              shape_.host_norm(slot_, tile),
              {ResourceKind::kHostLosses, slot_}};
  if (shape_.clipping) op.reads.push_back({ResourceKind::kClip, slot_});
  op.writes = {{ResourceKind::kTileWeights, tile}, {ResourceKind::kTileMoments, tile}};
  return op;
}

void UpdateBuilder::UpdateRows(int slab) {
  if (!shape_.embedding_from_host || !shape_.embedding_trained) return;
  Op& op = AddOnHost(UpdateRowsOp{slab}, 0, slab);
  op.bytes = UpdateBytes(RowElements());
  op.writes.push_back({ResourceKind::kEmbeddingRows});
}

void UpdateBuilder::Update(int tile, int slab, Resource device_gradient) {
  for (int part = 0; part < shape_.host_parts(tile); ++part) UpdateOnHost(tile, slab, part);
  if (shape_.updates_on_device(tile)) UpdateOnDevice(tile, device_gradient, std::nullopt);
}

void UpdateBuilder::UpdateOnHost(int tile, int slab, int part) {
  const int64_t begin = shape_.host_cut(tile, part), end = shape_.host_cut(tile, part + 1);
  if (begin == end) return;
  Op& op = AddOnHost(UpdateTileOp{tile, slab, begin, end}, tile, slab);
  op.bytes = UpdateBytes(end - begin - (tile == 0 ? RowElements() : 0));
  op.writes[0] = {ResourceKind::kTileWeights, shape_.host_part(tile, part)};
}

// Pieces of a tile run beside each other, so that each counts as a reader; the first and the last
// operation are the writers.
void UpdateBuilder::UpdateOnDevice(int tile, Resource gradient, std::optional<int> weight_buffer) {
  const Resource weights{ResourceKind::kTileWeights, shape_.device_part(tile)};
  const Resource moments{ResourceKind::kTileMoments, shape_.device_part(tile)};
  const bool in_slab = gradient.kind == ResourceKind::kSlab;
  {
    Op& op = Add(DeviceUpdateLane(next_lane_), BeginDeviceUpdateOp{tile});
    op.reads = {gradient};
    if (shape_.clipping) op.reads.push_back({ResourceKind::kClip, slot_});
    op.writes = {weights, moments};
    if (weight_buffer) {
      op.writes.push_back({ResourceKind::kWeightBuffer, *weight_buffer});
      op.writes.push_back({ResourceKind::kFirstTileHostPart});
    }
  }
  const int64_t first = shape_.host_end(tile), end = shape_.shard_end(tile);
  for (int64_t begin = first; begin < end; begin += shape_.device_piece_elements) {
    if (begin > first) next_lane_ = (next_lane_ + 1) % kDeviceUpdateLanes;
    const int64_t n = std::min(end - begin, shape_.device_piece_elements);
    Op& op = Add(DeviceUpdateLane(next_lane_),
                 DeviceUpdateOp{tile, begin, begin + n, gradient, weight_buffer});
    op.bytes = UpdateBytes(n);
    op.h2d_bytes = n * (kStateElementBytes + (in_slab ? shape_.gradient_element_bytes : 0));
    op.d2h_bytes = n * kStateElementBytes;
    op.reads = {gradient, weights, moments};
  }
  Op& op = Add(DeviceUpdateLane(next_lane_), EndDeviceUpdateOp{tile});
  op.d2h_bytes = sizeof(int32_t);
  op.writes = {weights, moments, {ResourceKind::kUpdateFlag, tile}};
  if (weight_buffer) op.writes.push_back({ResourceKind::kWeightBuffer, *weight_buffer});
  next_lane_ = (next_lane_ + 1) % kDeviceUpdateLanes;
}

void UpdateBuilder::CheckUpdates() {
  if (!shape_.updates_on_device()) return;
  Op& op = Add(Lane::kUpdate, CheckUpdatesOp{});
  for (int tile = 0; tile < shape_.tiles(); ++tile) {
    if (!shape_.updates_on_device(tile)) continue;
    op.reads.push_back({ResourceKind::kUpdateFlag, tile});
    op.reads.push_back(shape_.host_norm(slot_, tile));
    // Saves read them.
    op.writes.push_back({ResourceKind::kTileMoments, shape_.device_part(tile)});
  }
}

}  // namespace megatrain

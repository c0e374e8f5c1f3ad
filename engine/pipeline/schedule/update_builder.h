// UpdateBuilder appends the operations of a step that change the model: clipping, then AdamW on the
// host and on the device.
//
// Without clipping a tile is updated as soon as its gradient is in a slab.
//
// With clipping the device computes the sums of squares, and they go to the host ahead of the
// gradients. When the last sum is there, tile 1 is updated, then the embedding, then the others in
// the order in which the next step loads them. If the forward pass reads the embedding's rows from
// host memory, this changes:
// - The rows that the next batch looks up are updated in the middle of tile 1's update. If that
//   batch is not known yet, these are all rows.
// - The rest of the embedding is updated last.
// - The weights of tile 1 that the device updates stay in one of its weight buffers.
//
// The device updates its part of a tile in pieces. The state of a piece is copied to the device,
// updated and copied back. Two lanes do this, so that one loads while the other stores. The
// gradient of a piece is copied from the slab, unless it is still in the accumulator: without
// clipping, and for tile 1.
#ifndef MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_UPDATE_BUILDER_H_
#define MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_UPDATE_BUILDER_H_

#include <cstdint>
#include <optional>

#include "engine/pipeline/schedule/schedule.h"

namespace megatrain {

class UpdateBuilder {
 public:
  // Appends operations to `schedule`. `shape` and `schedule` must outlive this.
  UpdateBuilder(const PipelineShape& shape, int step_slot, Schedule* schedule)
      : shape_(shape), slot_(step_slot), schedule_(*schedule) {}

  // Appends clipping and the updates of all tiles. `first_accumulator` has the gradient of tile 1;
  // it is not used unless the device updates a part of that tile. `first_buffer` is the weight
  // buffer that may keep tile 1's weights (first_tile_in_buffer). REQUIRES: clipping; the stores of
  // all gradients are appended.
  void ClipAndUpdate(int first_accumulator, int first_buffer);
  // Appends the update of a tile. `slab` has the gradient for the host's part, and `accumulator`
  // for the device's part. REQUIRES: no clipping; the tile has a gradient, whose store is appended.
  void UpdateTile(int tile, int slab, int accumulator);
  // Appends the operation that replaces the losses, or the norms, or both, of a rank by those of
  // all ranks. Appends nothing if there is one rank. REQUIRES: the stores of the losses, or of the
  // norms, are appended.
  void ShareResults(bool losses, bool norms);
  // Appends the check of the device's updates, if there are any. REQUIRES: all updates are
  // appended.
  void CheckUpdates();

 private:
  Op& Add(Lane lane, const AnyOp& what) { return schedule_.ops.emplace_back(what, lane, slot_); }
  Op& AddOnHost(const AnyOp& what, int tile, int slab);
  void UpdateRows(int slab);
  // `device_gradient` has the gradient for the device's part.
  void Update(int tile, int slab, Resource device_gradient);
  void UpdateOnHost(int tile, int slab, int part);
  // `gradient` is a slab or an accumulator. `weight_buffer`, if any, keeps the updated weights.
  void UpdateOnDevice(int tile, Resource gradient, std::optional<int> weight_buffer);
  int64_t UpdateBytes(int64_t elements) const;
  int64_t RowElements() const;

  const PipelineShape& shape_;
  const int slot_;
  Schedule& schedule_;
  int next_lane_ = 0;  // the next device update lane
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_UPDATE_BUILDER_H_

// The operations of a step that change the model: AdamW on both sides, and the clipping before it.
//
// Without clipping a tile is updated as soon as its gradient is in a slab.
//
// With clipping the sums of squares are taken on the device and go to the host ahead of the
// gradients. When the last one is in, the tiles are updated in the order of the next step's loads,
// each just ahead of its own. Where the forward pass reads the embedding's rows from host memory,
// the rows that the next batch looks up are updated amid the first tile, and the rest of the
// embedding last. The first tile's weights that the device updates stay there, in a weight buffer.
//
// The device updates its part of a tile in pieces. A piece comes over the link with its moments, is
// updated and goes back, on two lanes, of which one loads while the other stores. With clipping its
// gradient comes from the slab too; without, it is still in the accumulator.
#ifndef MEGATRAIN_ENGINE_PIPELINE_UPDATE_BUILDER_H_
#define MEGATRAIN_ENGINE_PIPELINE_UPDATE_BUILDER_H_

#include <cstdint>

#include "engine/pipeline/schedule.h"

namespace megatrain {

class UpdateBuilder {
 public:
  // Appends to `schedule`. Both must outlive this.
  UpdateBuilder(const PipelineShape& shape, int step_slot, Schedule* schedule)
      : shape_(shape), slot_(step_slot), schedule_(*schedule) {}

  // With clipping, when all gradients are on their way. `first_accumulator` has tile 1's;
  // `first_buffer`: where its weights may go (first_tile_in_buffer).
  void ClipAndUpdate(int first_accumulator, int first_buffer);
  // Without: a tile whose gradient is on its way to `slab`, but for the device's part, which is in
  // `accumulator`.
  void UpdateTile(int tile, int slab, int accumulator);
  // Last.
  void CheckUpdates();

 private:
  Op& Add(OpKind kind, Lane lane, int tile);
  Op& AddOnHost(OpKind kind, int tile, int slab);
  void UpdateRows(int slab);
  void Update(int tile, int slab, int accumulator);
  void UpdateOnHost(int tile, int slab, int part);
  // `accumulator`: where the gradient is; -1: in the slab. `weight_buffer`: where the updated
  // weights stay; -1: nowhere.
  void UpdateOnDevice(int tile, int slab, int accumulator, int weight_buffer);
  int64_t UpdateBytes(int64_t elements) const;
  int64_t RowElements() const;

  const PipelineShape& shape_;
  const int slot_;
  Schedule& schedule_;
  int next_lane_ = 0;  // of those that update on the device
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_UPDATE_BUILDER_H_

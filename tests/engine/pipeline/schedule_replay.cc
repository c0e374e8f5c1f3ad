#include "tests/engine/pipeline/schedule_replay.h"

namespace megatrain {

void ScheduleReplay::Step(const Schedule& schedule, int micro_batches, bool training) {
  counts_ = {};
  for (const Op& op : schedule.ops) {
    SCOPED_TRACE(OpKindName(op.kind));
    Forward(op);
    Backward(op);
    Update(op, micro_batches);
    if (op.kind == OpKind::kCheckUpdates) {
      EXPECT_EQ(&op, &schedule.ops.back());
    }
  }
  if (!training) return;
  const int sweeps = (micro_batches + shape_.sweep_micro_batches - 1) / shape_.sweep_micro_batches;
  for (int tile = 0; tile < shape_.tiles(); ++tile) {
    EXPECT_LE(counts_.loads[tile], 2 * sweeps) << "tile " << tile;
    const int on_host = shape_.host_elements(tile) > 0 ? 1 : 0;
    // Without clipping, and of tile 1, the device takes its part from the accumulator.
    EXPECT_EQ(counts_.stores[tile], shape_.clipping && tile != 1 ? 1 : on_host) << "tile " << tile;
    EXPECT_EQ(counts_.updates[tile], on_host) << "tile " << tile;
    EXPECT_EQ(counts_.device_updates[tile], shape_.updates_on_device(tile) ? 1 : 0)
        << "tile " << tile;
  }
  // At the turn the last layer's tile is still there, if there is a second buffer.
  if (shape_.weight_buffers >= 2) {
    EXPECT_LE(counts_.loads[shape_.layers], sweeps);
  }
  ++step_;
}

void ScheduleReplay::Forward(const Op& op) {
  switch (op.kind) {
    case OpKind::kLoadTile:
      LoadPart(op);
      if (buffer_[op.weight_buffer] == Version(op.tile)) ++counts_.loads[op.tile];
      break;
    case OpKind::kEmbedForward:
      if (shape_.embedding_from_host) {
        EXPECT_EQ(op.weight_buffer, -1);
        EXPECT_EQ(rows_version_, step_);
      } else {
        CheckWeights(op);
      }
      hidden_[op.output_slot] = Hidden(0, op.micro_batch);
      break;
    case OpKind::kStoreStash:
      EXPECT_EQ(hidden_[op.input_slot], Hidden(op.layer, op.micro_batch));
      stash_[op.stash_slot] = hidden_[op.input_slot];
      break;
    case OpKind::kLoadStash:
      hidden_[op.output_slot] = stash_[op.stash_slot];
      break;
    case OpKind::kLayerForward:
      CheckWeights(op);
      EXPECT_EQ(hidden_[op.input_slot], Hidden(op.layer, op.micro_batch));
      EXPECT_NE(op.input_slot, op.output_slot);
      hidden_[op.output_slot] = Hidden(op.layer + 1, op.micro_batch);
      if (op.kept_slot >= 0) kept_[op.kept_slot] = Hidden(op.layer, op.micro_batch);
      break;
    case OpKind::kHead:
      CheckWeights(op);
      EXPECT_EQ(hidden_[op.input_slot], Hidden(shape_.layers, op.micro_batch));
      Accumulate(op);
      gradient_[op.sweep_index] = Hidden(shape_.layers, op.micro_batch);
      break;
    case OpKind::kHeadLoss:
      CheckWeights(op);
      EXPECT_EQ(hidden_[op.input_slot], Hidden(shape_.layers, op.micro_batch));
      break;
    default:
      break;
  }
}

void ScheduleReplay::Backward(const Op& op) {
  switch (op.kind) {
    case OpKind::kLayerBackward:
      CheckWeights(op);
      EXPECT_EQ(hidden_[op.input_slot], Hidden(op.layer, op.micro_batch));
      EXPECT_EQ(gradient_[op.sweep_index], Hidden(op.layer + 1, op.micro_batch));
      gradient_[op.sweep_index] = Hidden(op.layer, op.micro_batch);
      EXPECT_EQ(op.kept_slot >= 0, op.keep != KeepLevel::kNothing);
      if (op.kept_slot >= 0) {
        EXPECT_EQ(kept_[op.kept_slot], Hidden(op.layer, op.micro_batch));
      }
      Accumulate(op);
      break;
    case OpKind::kStoreHiddenGradient:
      stash_[op.stash_slot] = gradient_[op.sweep_index];
      break;
    case OpKind::kLoadHiddenGradient:
      hidden_[op.output_slot] = stash_[op.stash_slot];
      break;
    case OpKind::kEmbedBackward:
      EXPECT_EQ(op.input_slot >= 0 ? hidden_[op.input_slot] : gradient_[op.sweep_index],
                Hidden(0, op.micro_batch));
      Accumulate(op);
      break;
    case OpKind::kStorePartial:
    case OpKind::kStoreGradient:
      EXPECT_EQ(accumulator_[op.accumulator].first, op.tile);
      slab_[op.slab] = accumulator_[op.accumulator];
      if (op.kind == OpKind::kStoreGradient) ++counts_.stores[op.tile];
      break;
    case OpKind::kLoadPartial:
      EXPECT_EQ(slab_[op.slab].first, op.tile);
      // Piece by piece, whole in the end.
      EXPECT_EQ(op.begin, op.begin == 0 ? 0 : partial_end_[op.accumulator]);
      EXPECT_EQ(op.bytes, 4 * (op.end - op.begin));
      partial_end_[op.accumulator] = op.end;
      if (op.end == shape_.tile_elements[op.tile]) {
        accumulator_[op.accumulator] = slab_[op.slab];
      }
      break;
    default:
      break;
  }
}

void ScheduleReplay::Update(const Op& op, int micro_batches) {
  switch (op.kind) {
    case OpKind::kUpdateTile: {
      EXPECT_EQ(slab_[op.slab].first, op.tile);
      // The tied tile gets each micro-batch from both ends, every other tile once; always in
      // order.
      const bool both = shape_.tied && op.tile == 0;
      EXPECT_EQ(slab_[op.slab].second.size(), static_cast<size_t>(micro_batches) * (both ? 2 : 1));
      for (size_t i = 0; i < slab_[op.slab].second.size(); ++i) {
        EXPECT_EQ(slab_[op.slab].second[i], static_cast<int>(i) % micro_batches);
      }
      EXPECT_EQ(op.begin, host_end_[op.tile]);
      host_end_[op.tile] = op.end;
      if (op.end < shape_.host_elements(op.tile)) break;
      host_end_[op.tile] = 0;
      ++counts_.updates[op.tile];
      ++version_[op.tile];
      break;
    }
    case OpKind::kUpdateRows:
      EXPECT_EQ(slab_[op.slab].first, 0);
      EXPECT_EQ(counts_.updates[0], 0) << "the rest goes first";
      ++rows_version_;
      break;
    case OpKind::kBeginDeviceUpdate:
      device_end_[op.tile] = shape_.host_elements(op.tile);
      ++device_version_[op.tile];
      break;
    case OpKind::kDeviceUpdate: {
      const auto& gradient = op.slab >= 0 ? slab_[op.slab] : accumulator_[op.accumulator];
      EXPECT_EQ(op.slab >= 0, shape_.clipping && op.tile != 1);
      EXPECT_EQ(gradient.first, op.tile);
      EXPECT_EQ(gradient.second.size(), static_cast<size_t>(micro_batches));
      EXPECT_EQ(op.begin, device_end_[op.tile]) << "pieces lie side by side";
      EXPECT_LE(op.end - op.begin, shape_.device_piece_elements);
      EXPECT_EQ(op.begin % kUpdateAlignment, 0);
      device_end_[op.tile] = op.end;
      EXPECT_EQ(op.weight_buffer >= 0, op.tile == 1 && shape_.first_tile_in_buffer());
      if (op.weight_buffer >= 0) LoadPart(op);
      break;
    }
    case OpKind::kEndDeviceUpdate:
      EXPECT_EQ(device_end_[op.tile], shape_.tile_elements[op.tile]);
      ++counts_.device_updates[op.tile];
      break;
    default:
      break;
  }
}

}  // namespace megatrain

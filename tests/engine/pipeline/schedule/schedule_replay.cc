#include "tests/engine/pipeline/schedule/schedule_replay.h"

#include <algorithm>
#include <variant>

namespace megatrain {

PipelineShape MakeShape(Layers layers, bool tied, int buffers, bool clipping, bool host_stash,
                        int sweep, int slabs) {
  PipelineShape shape;
  int tiles = 1;
  for (int i = 0; i < layers.count; ++i) {
    shape.stages.push_back({.tile = tiles++});
    if (!layers.experts) continue;
    shape.stages.push_back({.tile = tiles, .expert_tiles = 2, .joins = layers.joins});
    tiles = shape.stages.back().last_tile() + 1;
  }
  shape.tied = tied;
  shape.tile_elements.assign(tiles + (tied ? 0 : 1), 1000);
  shape.weight_buffers = buffers;
  shape.clipping = clipping;
  shape.stash_on_host = host_stash;
  shape.sweep_micro_batches = sweep;
  shape.gradient_slabs = slabs;
  shape.hidden_bytes_per_token = 8;
  return shape;
}

void ScheduleReplay::Step(const Schedule& schedule, int micro_batches, bool training) {
  counts_ = {};
  micro_batches_ = micro_batches;
  for (const Op& op : schedule.ops) {
    SCOPED_TRACE(op.name());
    std::visit(
        [this](const auto& what) {
          if constexpr (requires { Do(what); }) Do(what);
        },
        op.what);
    if (const auto* load = op.as<LoadPartialOp>()) {
      EXPECT_EQ(op.bytes, 4 * (load->end - load->begin));
    }
    if (op.is<CheckUpdatesOp>()) {
      EXPECT_EQ(&op, &schedule.ops.back());
    }
  }
  if (!training) return;
  const int sweeps = (micro_batches + shape_.sweep_micro_batches - 1) / shape_.sweep_micro_batches;
  for (int tile = 0; tile < shape_.tiles(); ++tile) {
    // A router's tile is used three times.
    EXPECT_LE(counts_.loads[tile], (shape_.has_experts() ? 3 : 2) * sweeps) << "tile " << tile;
    const int on_host = shape_.host_end(tile) > shape_.shard_begin(tile) ? 1 : 0;
    const int trained = shape_.shard_elements(tile) > 0 ? 1 : 0;
    // Without clipping, and of tile 1, the device takes its part from the accumulator.
    EXPECT_EQ(counts_.stores[tile], shape_.clipping && tile != 1 ? trained : on_host)
        << "tile " << tile;
    EXPECT_EQ(counts_.updates[tile], on_host) << "tile " << tile;
    EXPECT_EQ(counts_.reductions[tile], shape_.ranks > 1 && shape_.state_elements(tile) > 0 ? 1 : 0)
        << "tile " << tile;
    EXPECT_EQ(counts_.device_updates[tile], shape_.updates_on_device(tile) ? 1 : 0)
        << "tile " << tile;
  }
  // At the turn the last layer's tile is still there, if there is a second buffer.
  const StageShape& last = shape_.stages.back();
  if (shape_.weight_buffers >= 2 && !last.has_experts()) {
    EXPECT_LE(counts_.loads[last.tile], sweeps);
  }
  // Nothing is computed before the first tensor that is trained.
  for (int stage = 0; stage < shape_.stage_count(); ++stage) {
    bool needed = shape_.embedding_trained;
    for (int tile = 1; tile <= shape_.stages[stage].last_tile(); ++tile) {
      needed |= shape_.state_elements(tile) > 0;
    }
    EXPECT_EQ(counts_.backwards[stage], needed ? micro_batches : 0) << "stage " << stage;
  }
  ++step_;
}

void ScheduleReplay::Do(const LoadTileOp& op) {
  LoadPart(op, op.weight_buffer);
  if (buffer_[op.weight_buffer] == Version(op.tile)) ++counts_.loads[op.tile];
  if (op.begin >= shape_.state_elements(op.tile)) {
    const int first = shape_.whole_loads ? 0 : shape_.rank;
    const int end = shape_.whole_loads ? shape_.ranks : shape_.rank + 1;
    EXPECT_EQ(op.begin, shape_.stateless_cut(op.tile, first));
    EXPECT_EQ(op.end, shape_.stateless_cut(op.tile, end));
    return;
  }
  if (shape_.whole_loads) {
    EXPECT_TRUE(awaited_[op.tile] == Version(op.tile));
    EXPECT_EQ(op.end - op.begin, shape_.state_elements(op.tile));
    return;
  }
  // Other ranks' elements come from them.
  EXPECT_GE(op.begin, shape_.shard_begin(op.tile));
  EXPECT_LE(op.end, shape_.shard_end(op.tile));
}

void ScheduleReplay::Do(const ZeroGradientOp& op) { accumulator_[op.accumulator] = {op.tile, {}}; }

// Micro-batches come in their order, those of the addend behind the others.
void ScheduleReplay::Do(const JoinGradientsOp& op) {
  auto& [tile, sum] = accumulator_[op.accumulator];
  const auto& [addend_tile, addend] = accumulator_[op.addend];
  EXPECT_EQ(tile, op.tile);
  EXPECT_EQ(addend_tile, op.tile);
  EXPECT_NE(op.accumulator, op.addend);
  sum.insert(sum.end(), addend.begin(), addend.end());
}

void ScheduleReplay::Do(const AwaitUpdatesOp& op) {
  EXPECT_TRUE(shape_.whole_loads);
  EXPECT_FALSE(awaited_[op.tile] == Version(op.tile)) << "once is enough";
  awaited_[op.tile] = Version(op.tile);
}

void ScheduleReplay::Do(const GatherWeightsOp& op) {
  EXPECT_FALSE(shape_.whole_loads);
  const int b = op.weight_buffer;
  const int64_t elements = shape_.tile_elements[op.tile] - shape_.shard_elements(op.tile) -
                           shape_.stateless_held(op.tile);
  if (elements == 0) return;                   // all of it is this rank's
  if (loading_[b] != op.tile) loaded_[b] = 0;  // nothing of it is
  loading_[b] = op.tile;
  AddLoaded(elements, op.tile, b);
  CheckWeights(b, op.tile);
  ++counts_.loads[op.tile];
}

void ScheduleReplay::Do(const ReduceGradientOp& op) {
  EXPECT_EQ(accumulator_[op.accumulator].first, op.tile);
  ++counts_.reductions[op.tile];
  awaited_.erase(op.tile);
  if (shape_.shard_elements(op.tile) == 0) ++version_[op.tile];  // others update it
}

void ScheduleReplay::Do(const EmbedForwardOp& op) {
  if (shape_.embedding_from_host) {
    EXPECT_FALSE(op.weight_buffer);
    EXPECT_EQ(rows_version_, shape_.embedding_trained ? step_ : 0);
  } else {
    CheckWeights(op.weight_buffer.value(), 0);
  }
  hidden_[op.output_slot] = Hidden(0, op.micro_batch);
}

void ScheduleReplay::Do(const StoreStashOp& op) {
  EXPECT_EQ(hidden_[op.input_slot], Hidden(op.stage, op.micro_batch));
  stash_[shape_.stash_slot(op.stage, op.sweep_index)] = hidden_[op.input_slot];
}

void ScheduleReplay::Do(const LoadStashOp& op) {
  hidden_[op.output_slot] = stash_[shape_.stash_slot(op.stage, op.sweep_index)];
}

void ScheduleReplay::Do(const LayerForwardOp& op) {
  CheckWeights(op.weight_buffer, shape_.stages[op.stage].tile);
  EXPECT_EQ(hidden_[op.input_slot], Hidden(op.stage, op.micro_batch));
  EXPECT_NE(op.input_slot, op.output_slot);
  hidden_[op.output_slot] = Hidden(op.stage + 1, op.micro_batch);
  if (op.kept) kept_[op.kept->slot] = Hidden(op.stage, op.micro_batch);
}

void ScheduleReplay::Do(const RouteOp& op) {
  CheckWeights(op.weight_buffer, shape_.stages[op.stage].tile);
  EXPECT_EQ(hidden_[op.input_slot], Hidden(op.stage, op.micro_batch));
  EXPECT_FALSE(op.backward && op.totals);
  routed_[op.sweep_index] = {hidden_[op.input_slot] + (op.backward ? "b" : "f"), {}};
}

void ScheduleReplay::Do(const ExpertsForwardOp& op) {
  CheckWeights(op.weight_buffer, op.tile);
  auto& [source, tiles] = routed_[op.sweep_index];
  EXPECT_EQ(source, Hidden(op.stage, op.micro_batch) + (op.backward ? "b" : "f"));
  EXPECT_TRUE(!op.backward || shape_.stages[op.stage].joins);
  tiles.push_back(op.tile);
  EXPECT_EQ(tiles, ExpertTiles(op.stage, op.tile));
  EXPECT_EQ(op.last, op.tile == shape_.stages[op.stage].last_tile());
  if (!op.last) return;
  EXPECT_EQ(hidden_[op.input_slot], Hidden(op.stage, op.micro_batch));
  hidden_[op.output_slot] = Hidden(op.stage + 1, op.micro_batch);
}

void ScheduleReplay::Do(const ExpertsBackwardOp& op) {
  CheckWeights(op.weight_buffer, op.tile);
  auto& [source, tiles] = routed_[op.sweep_index];
  const bool joins = shape_.stages[op.stage].joins;
  EXPECT_EQ(source, Hidden(op.stage, op.micro_batch) + (joins ? "j" : "b"));
  if (!joins) {
    EXPECT_EQ(gradient_[op.sweep_index], Hidden(op.stage + 1, op.micro_batch));
  }
  tiles.push_back(op.tile);
  EXPECT_EQ(tiles, ExpertTiles(op.stage, op.tile));
  AccumulateIfTrained(op, op.tile);
}

void ScheduleReplay::Do(const RouterBackwardOp& op) {
  const StageShape& stage = shape_.stages[op.stage];
  CheckWeights(op.weight_buffer, stage.tile);
  EXPECT_EQ(hidden_[op.input_slot], Hidden(op.stage, op.micro_batch));
  EXPECT_EQ(gradient_[op.sweep_index],
            stage.joins ? "joined" : Hidden(op.stage + 1, op.micro_batch));
  const auto& [source, tiles] = routed_[op.sweep_index];
  EXPECT_EQ(source, Hidden(op.stage, op.micro_batch) + (stage.joins ? "j" : "b"));
  EXPECT_EQ(tiles, ExpertTiles(op.stage, stage.last_expert_tile()));
  gradient_[op.sweep_index] = op.input_gradient ? Hidden(op.stage, op.micro_batch) : "none";
  ++counts_.backwards[op.stage];
  AccumulateIfTrained(op, stage.tile);
}

void ScheduleReplay::Do(const JoinForwardOp& op) {
  const StageShape& stage = shape_.stages[op.stage];
  CheckWeights(op.weight_buffer, stage.last_tile());
  EXPECT_EQ(hidden_[op.input_slot], Hidden(op.stage, op.micro_batch));
  const auto& [source, tiles] = routed_[op.sweep_index];
  EXPECT_EQ(source, Hidden(op.stage, op.micro_batch) + "f");
  EXPECT_EQ(tiles, ExpertTiles(op.stage, stage.last_expert_tile()));
  hidden_[op.output_slot] = Hidden(op.stage + 1, op.micro_batch);
}

void ScheduleReplay::Do(const JoinBackwardOp& op) {
  const StageShape& stage = shape_.stages[op.stage];
  CheckWeights(op.weight_buffer, stage.last_tile());
  EXPECT_EQ(hidden_[op.input_slot], Hidden(op.stage, op.micro_batch));
  EXPECT_EQ(gradient_[op.sweep_index], Hidden(op.stage + 1, op.micro_batch));
  auto& [source, tiles] = routed_[op.sweep_index];
  EXPECT_EQ(source, Hidden(op.stage, op.micro_batch) + "b");
  EXPECT_EQ(tiles, ExpertTiles(op.stage, stage.last_expert_tile()));
  source.back() = 'j';
  tiles.clear();
  gradient_[op.sweep_index] = "joined";
  AccumulateIfTrained(op, stage.last_tile());
}

void ScheduleReplay::Do(const HeadOp& op) {
  CheckWeights(op.weight_buffer, op.tile);
  EXPECT_EQ(hidden_[op.input_slot], Hidden(shape_.stage_count(), op.micro_batch));
  AccumulateIfTrained(op, op.tile);
  gradient_[op.sweep_index] =
      op.input_gradient ? Hidden(shape_.stage_count(), op.micro_batch) : "none";
}

void ScheduleReplay::Do(const HeadLossOp& op) {
  CheckWeights(op.weight_buffer, shape_.head_tile());
  EXPECT_EQ(hidden_[op.input_slot], Hidden(shape_.stage_count(), op.micro_batch));
}

void ScheduleReplay::Do(const HeadLogitsOp& op) {
  CheckWeights(op.weight_buffer, shape_.head_tile());
  EXPECT_EQ(hidden_[op.input_slot], Hidden(shape_.stage_count(), op.micro_batch));
}

void ScheduleReplay::Do(const LayerBackwardOp& op) {
  CheckWeights(op.weight_buffer, shape_.stages[op.stage].tile);
  EXPECT_EQ(hidden_[op.input_slot], Hidden(op.stage, op.micro_batch));
  EXPECT_EQ(gradient_[op.sweep_index], Hidden(op.stage + 1, op.micro_batch));
  gradient_[op.sweep_index] = op.input_gradient ? Hidden(op.stage, op.micro_batch) : "none";
  ++counts_.backwards[op.stage];
  if (op.kept) {
    EXPECT_NE(op.kept->level, KeepLevel::kNothing);
    EXPECT_EQ(kept_[op.kept->slot], Hidden(op.stage, op.micro_batch));
  }
  AccumulateIfTrained(op, shape_.stages[op.stage].tile);
}

void ScheduleReplay::Do(const StoreHiddenGradientOp& op) {
  stash_[shape_.embedding_stash_slot(op.micro_batch)] = gradient_[op.sweep_index];
}

void ScheduleReplay::Do(const LoadHiddenGradientOp& op) {
  hidden_[op.output_slot] = stash_[shape_.embedding_stash_slot(op.micro_batch)];
}

void ScheduleReplay::Do(const EmbedBackwardOp& op) {
  const Resource& source = op.hidden_gradient;
  EXPECT_EQ(source.kind == ResourceKind::kHidden ? hidden_[source.index] : gradient_[source.index],
            Hidden(0, op.micro_batch));
  // A tied matrix has the head's gradient already.
  EmbedBackwardOp sum = op;
  sum.first = op.first && !shape_.tied;
  Accumulate(sum, op.accumulator, 0);
}

void ScheduleReplay::Do(const StorePartialOp& op) {
  EXPECT_EQ(accumulator_[op.accumulator].first, op.tile);
  slab_[op.slab] = accumulator_[op.accumulator];
}

void ScheduleReplay::Do(const StoreGradientOp& op) {
  EXPECT_EQ(accumulator_[op.accumulator].first, op.tile);
  slab_[op.slab] = accumulator_[op.accumulator];
  ++counts_.stores[op.tile];
}

void ScheduleReplay::Do(const LoadPartialOp& op) {
  EXPECT_EQ(slab_[op.slab].first, op.tile);
  // Piece by piece, whole in the end.
  EXPECT_EQ(op.begin, op.begin == 0 ? 0 : partial_end_[op.accumulator]);
  partial_end_[op.accumulator] = op.end;
  if (op.end == shape_.state_elements(op.tile)) {
    accumulator_[op.accumulator] = slab_[op.slab];
  }
}

void ScheduleReplay::Do(const UpdateTileOp& op) {
  EXPECT_EQ(slab_[op.slab].first, op.tile);
  // The tied tile gets each micro-batch from both ends, every other tile once; always in
  // order.
  const bool both = shape_.tied && op.tile == 0 && shape_.embedding_trained;
  EXPECT_EQ(slab_[op.slab].second.size(), static_cast<size_t>(micro_batches_) * (both ? 2 : 1));
  for (size_t i = 0; i < slab_[op.slab].second.size() && shape_.folds == 1; ++i) {
    EXPECT_EQ(slab_[op.slab].second[i], static_cast<int>(i) % micro_batches_);
  }
  if (!both) {
    EXPECT_TRUE(std::is_sorted(slab_[op.slab].second.begin(), slab_[op.slab].second.end()));
  }
  int64_t& host_end = host_end_.try_emplace(op.tile, shape_.shard_begin(op.tile)).first->second;
  EXPECT_EQ(op.begin, host_end);
  host_end = op.end;
  if (op.end < shape_.host_end(op.tile)) return;
  host_end_.erase(op.tile);
  ++counts_.updates[op.tile];
  ++version_[op.tile];
}

void ScheduleReplay::Do(const UpdateRowsOp& op) {
  EXPECT_EQ(slab_[op.slab].first, 0);
  EXPECT_EQ(counts_.updates[0], 0) << "the rest goes first";
  ++rows_version_;
}

void ScheduleReplay::Do(const BeginDeviceUpdateOp& op) {
  device_end_[op.tile] = shape_.host_end(op.tile);
  ++device_version_[op.tile];
}

void ScheduleReplay::Do(const DeviceUpdateOp& op) {
  const bool in_slab = op.gradient.kind == ResourceKind::kSlab;
  const auto& gradient = in_slab ? slab_[op.gradient.index] : accumulator_[op.gradient.index];
  EXPECT_EQ(in_slab, shape_.clipping && op.tile != 1);
  EXPECT_EQ(gradient.first, op.tile);
  EXPECT_EQ(gradient.second.size(), static_cast<size_t>(micro_batches_));
  EXPECT_EQ(op.begin, device_end_[op.tile]) << "pieces lie side by side";
  EXPECT_LE(op.end - op.begin, shape_.device_piece_elements);
  EXPECT_EQ(op.begin % kUpdateAlignment, 0);
  device_end_[op.tile] = op.end;
  EXPECT_EQ(op.weight_buffer.has_value(), op.tile == 1 && shape_.first_tile_in_buffer());
  if (op.weight_buffer) LoadPart(op, *op.weight_buffer);
}

void ScheduleReplay::Do(const EndDeviceUpdateOp& op) {
  EXPECT_EQ(device_end_[op.tile], shape_.shard_end(op.tile));
  ++counts_.device_updates[op.tile];
}

}  // namespace megatrain

// The part of StepRunner that changes and saves the model: clipping, AdamW on both sides.
#include <utility>

#include "engine/base/status.h"
#include "engine/optim/clip_coefficient.h"
#include "engine/pipeline/step_runner.h"

namespace megatrain {

absl::Status StepRunner::Do(const ClipOp&, const Op& op, Stream*) {
  MT_RETURN_IF_ERROR(CheckBeforeChanges(op.step_slot));
  CollectNorm(op.step_slot);
  StepState& state = states_[op.step_slot];
  state.adamw.gradient_scale =
      static_cast<float>(ClipCoefficient(state.gradient_norm, state.max_gradient_norm));
  return absl::OkStatus();
}

void StepRunner::FindRows(int slot) {
  const PipelineDimensions& d = *p_.dimensions;
  StepState& state = states_[slot];
  const BatchArrays arrays = BatchArrays::At(p_.host_buffers->batch[slot].data(), d);
  if (IsTrained(d.layout->tiles[0], d.layout->embedding_offset)) {
    std::vector<bool> looked_up(static_cast<size_t>(d.layout->model.vocabulary));
    for (size_t m = 0; m < state.micro_batch_tokens.size(); ++m) {
      const int32_t* const ids = arrays.ids + static_cast<int64_t>(m) * d.micro_batch_tokens;
      for (int64_t t = 0; t < state.micro_batch_tokens[m]; ++t) {
        looked_up[static_cast<size_t>(ids[t])] = true;
      }
    }
    const int64_t width = d.layout->model.hidden;
    for (int64_t row = 0; row < d.layout->model.vocabulary; ++row) {
      if (!looked_up[static_cast<size_t>(row)]) continue;
      const int64_t begin = d.layout->embedding_offset + row * width;
      if (!state.rows.empty() && state.rows.back().end == begin) {
        state.rows.back().end += width;
      } else {
        state.rows.push_back({begin, begin + width});
      }
    }
  }
  // The embedding's operation reads this too.
  if (const int64_t norm = d.layout->per_layer_norm_offset; norm >= 0) {
    const int64_t elements = d.layout->model.layers.front().per_layer_input.width;
    if (IsTrained(d.layout->tiles[0], norm)) state.rows.push_back({norm, norm + elements});
  }
}

bool StepRunner::RequestRowsFirst(int slot) {
  const StepState& state = states_[slot];
  MutexLock lock(&rows_mutex_);
  if (updating_step_ >= state.step - 1) return false;
  requested_step_ = state.step - 1;
  requested_rows_ = state.rows;
  return true;
}

// The whole tile, if the next batch is not known yet.
absl::Status StepRunner::Do(const UpdateRowsOp& update, const Op& op, Stream*) {
  StepState& state = states_[op.step_slot];
  state.updated_rows = {{0, OwnPart(0).layout->state_elements()}};
  {
    MutexLock lock(&rows_mutex_);
    updating_step_ = state.step;
    if (requested_step_ == state.step) state.updated_rows = std::move(requested_rows_);
  }
  return UpdateOnHost(op.step_slot, 0, update.slab, state.updated_rows);
}

absl::Status StepRunner::Do(const UpdateTileOp& update, const Op& op, Stream*) {
  // Those between what is done.
  std::vector<ElementRange> ranges;
  int64_t begin = update.begin;
  if (update.tile == 0) {
    for (const ElementRange& rows : states_[op.step_slot].updated_rows) {
      if (begin < rows.begin) ranges.push_back({begin, rows.begin});
      begin = rows.end;
    }
  }
  if (begin < update.end) ranges.push_back({begin, update.end});
  return UpdateOnHost(op.step_slot, update.tile, update.slab, ranges);
}

// A slab has the shard's elements alone.
const void* StepRunner::SlabOfTile(int slab, int tile) const {
  const auto shard = reinterpret_cast<uintptr_t>(p_.host_buffers->slabs[slab].data());
  const int64_t before = p_.dimensions->shape.shard_begin(tile);
  return reinterpret_cast<const void*>(
      shard - static_cast<uintptr_t>(before * DTypeBytes(p_.dimensions->gradient_dtype)));
}

absl::Status StepRunner::UpdateOnHost(int slot, int tile, int slab,
                                      absl::Span<const ElementRange> ranges) {
  MT_RETURN_IF_ERROR(exchange_status());
  MT_RETURN_IF_ERROR(CheckNorm(slot, tile));
  if (p_.updater->Update(states_[slot].adamw, SlabOfTile(slab, tile), p_.dimensions->gradient_dtype,
                         OwnPart(tile), ranges, *p_.host_nodes)) {
    return absl::OkStatus();
  }
  return NotTrusted(slot, tile);
}

absl::Status StepRunner::Do(const BeginDeviceUpdateOp& begin, const Op&, Stream* stream) {
  MT_RETURN_IF_ERROR(exchange_status());
  return p_.device->kernels().Zero(*stream, p_.device_buffers->update_flags + begin.tile,
                                   sizeof(int32_t));
}

// The state of elements [piece.begin, piece.end) comes to the device and goes back; their gradient
// comes from the slab, or is in the accumulator. Their weights come to a weight buffer and stay
// there, if the operation names one.
absl::Status StepRunner::Do(const DeviceUpdateOp& piece, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  const int lane = static_cast<int>(op.lane) - static_cast<int>(Lane::kDeviceUpdate0);
  const Tile& host = OwnPart(piece.tile);
  Tile device = b.update_state[lane];
  const DType gradient_dtype = p_.dimensions->gradient_dtype;
  const int64_t elements = piece.end - piece.begin;
  if (piece.weight_buffer) device.weights = BufferAt(*piece.weight_buffer, piece.begin);
  device.held.state = {0, elements};
  struct Section {
    void* device;
    void* host;
    int64_t bytes;
  };
  const Section sections[] = {
      {device.weights, host.WeightsAt(piece.begin), elements * DTypeBytes(host.weight_dtype)},
      {device.remainder, host.RemainderAt(piece.begin), elements * int64_t{sizeof(int16_t)}},
      {device.exp_avg, host.ExpAvgAt(piece.begin), elements * int64_t{sizeof(float)}},
      {device.exp_avg_sq, host.ExpAvgSqAt(piece.begin), elements * int64_t{sizeof(float)}}};
  for (const Section& s : sections) {
    if (s.host == nullptr) continue;
    MT_RETURN_IF_ERROR(p_.device->CopyToDevice(*stream, s.device, s.host, s.bytes));
  }
  const int64_t gradient_bytes = DTypeBytes(gradient_dtype);
  const int64_t first = piece.begin - p_.dimensions->shape.shard_begin(piece.tile);
  const int source = piece.gradient.index;
  const char* gradient = nullptr;  // of element piece.begin
  if (piece.gradient.kind == ResourceKind::kSlab) {
    gradient = static_cast<const char*>(b.update_gradient[lane]);
    MT_RETURN_IF_ERROR(p_.device->CopyToDevice(
        *stream, b.update_gradient[lane],
        static_cast<const char*>(p_.host_buffers->slabs[source].data()) + first * gradient_bytes,
        elements * gradient_bytes));
  } else {
    gradient =
        reinterpret_cast<const char*>(ShardGradient(piece.tile, source)) + first * gradient_bytes;
  }
  AdamWArgs args;
  args.gradient_dtype = gradient_dtype;
  args.untrusted = b.update_flags + piece.tile;
  for (const AdamWRange& run : AdamWRanges(*host.layout, {piece.begin, piece.end})) {
    args.constants = AdamWConstants::Make(states_[op.step_slot].adamw, run.rate_group);
    args.decays = run.decays;
    args.span = AdamWSpanAt(device, gradient, gradient_dtype, run.elements.begin - piece.begin,
                            run.elements.end - run.elements.begin);
    MT_RETURN_IF_ERROR(p_.device->kernels().AdamW(*stream, args));
  }
  for (const Section& s : sections) {
    if (s.host == nullptr) continue;
    MT_RETURN_IF_ERROR(p_.device->CopyToHost(*stream, s.host, s.device, s.bytes));
  }
  return absl::OkStatus();
}

absl::Status StepRunner::Do(const EndDeviceUpdateOp& end, const Op& op, Stream* stream) {
  return p_.device->CopyToHost(*stream, p_.host_buffers->update_flags[op.step_slot] + end.tile,
                               p_.device_buffers->update_flags + end.tile, sizeof(int32_t));
}

absl::Status StepRunner::Do(const SaveTileOp& save, const Op&, Stream*) {
  MT_RETURN_IF_ERROR(exchange_status());
  save_calls_.take_tile(save.tile, (*p_.tiles)[static_cast<size_t>(save.tile)]);
  // After an abort another rank may still be reading the tile: this one must not update it.
  return exchange_status();
}

absl::Status StepRunner::Do(const FinishCheckpointOp&, const Op&, Stream*) {
  save_calls_.finish();
  return absl::OkStatus();
}

}  // namespace megatrain

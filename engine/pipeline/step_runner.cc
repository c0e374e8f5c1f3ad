#include "engine/pipeline/step_runner.h"

#include <algorithm>
#include <memory>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/sequences/document_bounds.h"
#include "engine/model/experts/expert_join.h"

namespace megatrain {

std::string TileName(const TileLayout& tile) {
  switch (tile.kind) {
    case TileKind::kEmbedding:
      return "embedding";
    case TileKind::kTiedEmbedding:
      return "embedding and head";
    case TileKind::kLayer:
      return absl::StrCat("layer ", tile.layer);
    case TileKind::kAttention:
      return absl::StrCat("layer ", tile.layer, ", attention");
    case TileKind::kRouter:
      return absl::StrCat("layer ", tile.layer, ", router");
    case TileKind::kExperts:
      return absl::StrCat("layer ", tile.layer, ", experts ", tile.first_expert, " to ",
                          tile.first_expert + tile.experts - 1);
    case TileKind::kJoin:
      return absl::StrCat("layer ", tile.layer, ", dense unit beside experts");
    case TileKind::kHead:
      return "head";
  }
  return "tile";
}

absl::Status StepRunner::PrepareBatch(int slot, const Batch& batch) {
  const PipelineDimensions& d = *p_.dimensions;
  MT_RETURN_IF_ERROR(CheckTokenIds(batch, d.layout->model.vocabulary));
  const BatchArrays arrays = BatchArrays::At(p_.host_buffers->batch[slot].data(), d);
  StepState& state = states_[slot];
  state = StepState{};
  state.step = batch.step;
  state.loss_terms = batch.loss_terms();
  state.micro_batch_tokens = batch.micro_batch_tokens;
  state.step_micro_batches = batch.step_micro_batches;
  state.document_starts = batch.document_starts;
  state.padding = batch.padding;
  state.caches = !batch.first_rows.empty();
  state.attends_to_cache = batch.attends_to_cache;
  if (d.training) {
    std::vector<int64_t> tokens = batch.micro_batch_tokens;
    for (size_t m = 0; m < batch.padding.size(); ++m) {
      for (const auto& [begin, end] : batch.padding[m]) tokens[m] -= end - begin;
    }
    state.router = RouterTotals(*d.layout, tokens, batch.input_tokens);
  }
  state.router_gradients.resize(batch.micro_batch_tokens.size());
  int64_t first = 0;  // the micro-batch's first token
  for (size_t m = 0; m < state.micro_batch_tokens.size(); ++m) {
    const int64_t base = static_cast<int64_t>(m) * d.micro_batch_tokens;
    const int64_t tokens = state.micro_batch_tokens[m];
    std::copy_n(batch.ids.begin() + first, tokens, arrays.ids + base);
    std::copy_n(batch.positions.begin() + first, tokens, arrays.positions + base);
    std::copy_n(batch.targets.begin() + first, tokens, arrays.targets + base);
    std::copy_n(batch.sorted_positions.begin() + first, tokens, arrays.sorted_positions + base);
    WriteDocumentBounds(state.document_starts[m], arrays.document_bounds + 2 * base);
    if (!batch.first_rows.empty()) {
      std::copy_n(batch.first_rows.begin() + first, tokens, arrays.first_rows + base);
      std::copy_n(batch.state_rows.begin() + first, tokens, arrays.state_rows + base);
    }
    first += tokens;
  }
  if (d.shape.pairs) PreparePairs(slot, batch);
  if (d.training && d.shape.embedding_from_host && d.shape.embedding_trained) FindRows(slot);
  if (batch.attends_to_cache) return absl::OkStatus();
  for (int i = 0; i < static_cast<int>(state.micro_batch_tokens.size()); ++i) {
    for (const Stage& stage : d.layout->stages) {
      if (stage.kind == StageKind::kExperts ||
          !std::binary_search(different_attention_.begin(), different_attention_.end(),
                              stage.layer)) {
        continue;
      }
      PrepareDecoderLayer(Context(nullptr, stage.layer, stage.tile), View(slot, i),
                          d.training ? p_.device_buffers->backward.workspace_bytes : 0);
    }
  }
  return absl::OkStatus();
}

MicroBatchView StepRunner::View(int slot, int micro_batch) const {
  const PipelineDimensions& d = *p_.dimensions;
  const StepState& state = states_[slot];
  const BatchArrays arrays = BatchArrays::At(p_.device_buffers->batch[slot], d);
  const int64_t base = micro_batch * d.micro_batch_tokens;
  const std::vector<int32_t>& starts = state.document_starts[micro_batch];
  MicroBatchView view;
  view.tokens = state.micro_batch_tokens[micro_batch];
  view.ids = arrays.ids + base;
  view.positions = arrays.positions + base;
  view.targets = arrays.targets + base;
  view.sorted_positions = arrays.sorted_positions + base;
  view.document_bounds = arrays.document_bounds + 2 * base;
  if (arrays.first_rows != nullptr) {
    view.first_rows = arrays.first_rows + base;
    view.state_rows = arrays.state_rows + base;
  }
  view.document_starts = starts.data();
  view.documents = static_cast<int64_t>(starts.size()) - 1;
  if (!state.padding.empty()) view.padding = state.padding[static_cast<size_t>(micro_batch)];
  if (const std::vector<void*>& shared = p_.device_buffers->shared; !shared.empty()) {
    view.shared = PlaceSharedRows(d.layout->model, d.dtype, d.micro_batch_tokens, d.training,
                                  shared[static_cast<size_t>(micro_batch) % shared.size()]);
    if (float* const sums = p_.device_buffers->per_layer_norm_gradient; sums != nullptr) {
      view.shared.per_layer_norm_gradient =
          sums + micro_batch * d.layout->model.layers.front().per_layer_input.width;
    }
  }
  if (p_.dimensions->shape.pairs) {
    const int64_t pair = micro_batch * d.pairs_max();
    view.pairs = state.pairs[micro_batch];
    view.pair_bounds = arrays.pair_bounds + 4 * pair;
    view.reference_logps = arrays.reference_logps + 2 * pair;
  }
  return view;
}

LayerContext StepRunner::Context(Stream* stream, int layer, int tile) const {
  LayerContext context;
  context.layout = p_.dimensions->layout;
  context.dtype = p_.dimensions->dtype;
  context.attention = p_.attention;
  context.kernels = &p_.device->kernels();
  context.stream = stream;
  context.ropes = p_.device_buffers->ropes;
  context.chunk_tokens = p_.dimensions->layer_chunk_tokens;
  context.layer = layer;
  context.tile = tile;
  return context;
}

LayerContext StepRunner::StageContext(Stream* stream, int stage) const {
  const Stage& of = p_.dimensions->layout->stages[static_cast<size_t>(stage)];
  return Context(stream, of.layer, of.tile);
}

void* StepRunner::StashData(int stage, int sweep_index) const {
  const int stashed = stage - p_.dimensions->shape.lowest_stage();
  return static_cast<char*>(p_.host_buffers->stash[stashed].data()) +
         sweep_index * p_.dimensions->hidden_bytes();
}

void* StepRunner::EmbeddingStashData(int micro_batch) const {
  return static_cast<char*>(p_.host_buffers->embedding_stash.data()) +
         micro_batch * p_.dimensions->hidden_bytes();
}

absl::Status StepRunner::Run(const Op& op, Stream* stream) {
  return std::visit([&](const auto& what) { return Do(what, op, stream); }, op.what);
}

// --- Copies.

absl::Status StepRunner::Do(const LoadStashOp& load, const Op& op, Stream* stream) {
  return p_.device->CopyToDevice(*stream, p_.device_buffers->hidden[load.output_slot],
                                 StashData(load.stage, load.sweep_index), op.bytes);
}

absl::Status StepRunner::Do(const LoadPartialOp& load, const Op& op, Stream* stream) {
  const void* const slab = p_.host_buffers->slabs[load.slab].data();
  return p_.device->CopyToDevice(*stream,
                                 p_.device_buffers->accumulators[load.accumulator] + load.begin,
                                 static_cast<const float*>(slab) + load.begin, op.bytes);
}

absl::Status StepRunner::Do(const LoadHiddenGradientOp& load, const Op& op, Stream* stream) {
  return p_.device->CopyToDevice(*stream, p_.device_buffers->hidden[load.output_slot],
                                 EmbeddingStashData(load.micro_batch), op.bytes);
}

absl::Status StepRunner::Do(const StoreHiddenGradientOp& store, const Op& op, Stream* stream) {
  return p_.device->CopyToHost(*stream, EmbeddingStashData(store.micro_batch),
                               p_.device_buffers->hidden_gradient[store.sweep_index], op.bytes);
}

absl::Status StepRunner::Do(const StoreStashOp& store, const Op& op, Stream* stream) {
  return p_.device->CopyToHost(*stream, StashData(store.stage, store.sweep_index),
                               p_.device_buffers->hidden[store.input_slot], op.bytes);
}

absl::Status StepRunner::Do(const StoreNormOp& store, const Op& op, Stream* stream) {
  const int64_t folds = p_.dimensions->shape.folds;
  return p_.device->CopyToHost(*stream, p_.host_buffers->norms[op.step_slot] + store.tile * folds,
                               p_.device_buffers->norms + store.accumulator * folds, op.bytes);
}

absl::Status StepRunner::Do(const StoreGradientOp& store, const Op& op, Stream* stream) {
  return p_.device->CopyToHost(*stream, p_.host_buffers->slabs[store.slab].data(),
                               ShardGradient(store.tile, store.accumulator), op.bytes);
}

// There is one rank if there are partial gradients.
absl::Status StepRunner::Do(const StorePartialOp& store, const Op& op, Stream* stream) {
  return Do(StoreGradientOp{store.tile, store.accumulator, store.slab}, op, stream);
}

absl::Status StepRunner::Do(const StoreLossesOp&, const Op& op, Stream* stream) {
  return p_.device->CopyToHost(*stream, p_.host_buffers->loss_results[op.step_slot],
                               p_.device_buffers->loss_results[op.step_slot], op.bytes);
}

void* StepRunner::BufferAt(int weight_buffer, int64_t element) const {
  return static_cast<char*>(p_.device_buffers->weights[weight_buffer]) +
         element * p_.dimensions->shape.weight_element_bytes;
}

float* StepRunner::ShardGradient(int tile, int accumulator) const {
  return p_.device_buffers->accumulators[accumulator] + p_.dimensions->shape.shard_begin(tile);
}

std::vector<int64_t> StepRunner::Cuts(CutOf cut_of, int tile, int64_t element_bytes) const {
  const PipelineShape& shape = p_.dimensions->shape;
  std::vector<int64_t> cuts;
  for (int r = 0; r <= shape.ranks; ++r) cuts.push_back((shape.*cut_of)(tile, r) * element_bytes);
  return cuts;
}

// The ranks meet on the host, where a device's part of an update must have arrived by then: the
// stream waits for it, and the host for the stream.
absl::Status StepRunner::Do(const AwaitUpdatesOp& await, const Op&, Stream* stream) {
  if (p_.dimensions->shape.updates_on_device(await.tile)) {
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> updated, p_.device->CreateEvent());
    MT_RETURN_IF_ERROR(p_.device->Record(*stream, *updated));
    MT_RETURN_IF_ERROR(p_.device->Synchronize(*updated));
  }
  return p_.tile_communicator->Barrier();
}

absl::Status StepRunner::Do(const GatherWeightsOp& gather, const Op&, Stream* stream) {
  for (const CutOf cut_of : {&PipelineShape::shard_cut, &PipelineShape::stateless_cut}) {
    const std::vector<int64_t> cuts =
        Cuts(cut_of, gather.tile, p_.dimensions->shape.weight_element_bytes);
    if (cuts.front() == cuts.back()) continue;
    MT_RETURN_IF_ERROR(p_.tile_communicator->AllGather(
        *stream, p_.device_buffers->weights[gather.weight_buffer], cuts));
  }
  return absl::OkStatus();
}

absl::Status StepRunner::Do(const ReduceGradientOp& reduce, const Op&, Stream* stream) {
  return p_.tile_communicator->ReduceScatter(*stream,
                                             p_.device_buffers->accumulators[reduce.accumulator],
                                             Cuts(&PipelineShape::shard_cut, reduce.tile, 1));
}

absl::Status StepRunner::Do(const LoadTileOp& load, const Op& op, Stream* stream) {
  const int64_t size = p_.dimensions->shape.weight_element_bytes;
  const ElementRange loaded{load.begin, load.begin + op.bytes / size};
  for (const Tile& part : (*p_.tiles)[static_cast<size_t>(load.tile)]) {
    for (const ElementRange& there : {part.held.state, part.held.stateless}) {
      const ElementRange run = Intersection(there, loaded);
      if (run.elements() == 0) continue;
      MT_RETURN_IF_ERROR(p_.device->CopyToDevice(*stream, BufferAt(load.weight_buffer, run.begin),
                                                 part.WeightsAt(run.begin), run.elements() * size));
    }
  }
  return absl::OkStatus();
}

absl::Status StepRunner::Do(const UploadBatchOp&, const Op& op, Stream* stream) {
  const PipelineDimensions& d = *p_.dimensions;
  const BatchArrays host = BatchArrays::At(p_.host_buffers->batch[op.step_slot].data(), d);
  const BatchArrays device = BatchArrays::At(p_.device_buffers->batch[op.step_slot], d);
  const StepState& state = states_[op.step_slot];
  for (size_t m = 0; m < state.micro_batch_tokens.size(); ++m) {
    const int64_t base = static_cast<int64_t>(m) * d.micro_batch_tokens;
    const int64_t bytes = state.micro_batch_tokens[m] * int64_t{sizeof(int32_t)};
    for (auto array : {&BatchArrays::ids, &BatchArrays::positions, &BatchArrays::targets,
                       &BatchArrays::sorted_positions}) {
      MT_RETURN_IF_ERROR(
          p_.device->CopyToDevice(*stream, device.*array + base, host.*array + base, bytes));
    }
    MT_RETURN_IF_ERROR(p_.device->CopyToDevice(*stream, device.document_bounds + 2 * base,
                                               host.document_bounds + 2 * base, 2 * bytes));
    if (state.caches) {
      for (auto array : {&BatchArrays::first_rows, &BatchArrays::state_rows}) {
        MT_RETURN_IF_ERROR(
            p_.device->CopyToDevice(*stream, device.*array + base, host.*array + base, bytes));
      }
    }
    if (!d.shape.pairs) continue;
    const int64_t pair = static_cast<int64_t>(m) * d.pairs_max();
    const int64_t pairs = state.pairs[m];
    MT_RETURN_IF_ERROR(p_.device->CopyToDevice(*stream, device.reference_logps + 2 * pair,
                                               host.reference_logps + 2 * pair,
                                               2 * pairs * int64_t{sizeof(double)}));
    MT_RETURN_IF_ERROR(p_.device->CopyToDevice(*stream, device.pair_bounds + 4 * pair,
                                               host.pair_bounds + 4 * pair,
                                               4 * pairs * int64_t{sizeof(int32_t)}));
  }
  return absl::OkStatus();
}

}  // namespace megatrain

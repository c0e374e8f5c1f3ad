#include "engine/pipeline/step_runner.h"

#include <algorithm>
#include <cmath>
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
  state.document_starts = batch.document_starts;
  state.caches = !batch.first_rows.empty();
  state.continues = batch.continues;
  if (d.training) state.router = RouterTotals(*d.layout, batch.micro_batch_tokens);
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
  if (batch.continues) return absl::OkStatus();
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
  return p_.device->CopyToHost(*stream, p_.host_buffers->norms[op.step_slot] + store.tile,
                               p_.device_buffers->norms + store.accumulator, op.bytes);
}

absl::Status StepRunner::Do(const StoreGradientOp& store, const Op& op, Stream* stream) {
  return p_.device->CopyToHost(*stream, p_.host_buffers->slabs[store.slab].data(),
                               p_.device_buffers->accumulators[store.accumulator], op.bytes);
}

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

absl::Status StepRunner::Do(const LoadTileOp& load, const Op& op, Stream* stream) {
  const int64_t begin = load.begin * p_.dimensions->shape.weight_element_bytes;
  return p_.device->CopyToDevice(*stream, BufferAt(load.weight_buffer, load.begin),
                                 static_cast<const char*>((*p_.tiles)[load.tile].weights) + begin,
                                 op.bytes);
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

// --- Computation.

LayerActivations StepRunner::Activations(int stage,
                                         const std::optional<KeptActivations>& kept) const {
  const PipelineDimensions& d = *p_.dimensions;
  const DeviceBuffers& b = *p_.device_buffers;
  const int layer = d.layout->stages[static_cast<size_t>(stage)].layer;
  return PlaceActivations(d.layout->model, layer, d.dtype, d.micro_batch_tokens,
                          d.layer_chunk_tokens, kept ? kept->level : KeepLevel::kNothing,
                          kept ? b.kept[kept->slot] : nullptr, b.layer_scratch, b.work);
}

absl::Status StepRunner::Do(const EmbedForwardOp& embed, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  return EmbeddingForward(
      Context(stream),
      embed.weight_buffer ? b.weights[*embed.weight_buffer] : (*p_.tiles)[0].weights,
      View(op.step_slot, embed.micro_batch), b.hidden[embed.output_slot]);
}

absl::Status StepRunner::Do(const LayerForwardOp& layer, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  LayerContext context = StageContext(stream, layer.stage);
  if (layer.cache != CacheUse::kNone) {
    context.cache = {.data = b.cache[static_cast<size_t>(context.layer)],
                     .sequences = p_.dimensions->micro_batches,
                     .attend = layer.cache == CacheUse::kAttend};
  }
  const Stage& stage = p_.dimensions->layout->stages[static_cast<size_t>(layer.stage)];
  const auto forward =
      stage.kind == StageKind::kLayer ? DecoderLayerForward : AttentionStageForward;
  return forward(context, b.weights[layer.weight_buffer], View(op.step_slot, layer.micro_batch),
                 b.hidden[layer.input_slot], Activations(layer.stage, layer.kept),
                 b.hidden[layer.output_slot]);
}

absl::Status StepRunner::Do(const LayerBackwardOp& layer, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  float* const gradient = layer.accumulator ? b.accumulators[*layer.accumulator] : nullptr;
  const LayerContext context = StageContext(stream, layer.stage);
  if (layer.first && gradient != nullptr) {
    MT_RETURN_IF_ERROR(ZeroPadding(context.tile, gradient, *stream));
  }
  return DecoderLayerBackward(
      context, b.weights[layer.weight_buffer], View(op.step_slot, layer.micro_batch),
      b.hidden[layer.input_slot], Activations(layer.stage, layer.kept), b.backward,
      b.hidden_gradient[layer.sweep_index], gradient, layer.first, layer.input_gradient);
}

RoutedTokens StepRunner::Routed(int sweep_index) const {
  const PipelineDimensions& d = *p_.dimensions;
  RoutedTokens routed = PlaceRouted(d.layout->model, d.dtype, d.micro_batch_tokens,
                                    p_.device_buffers->routed[static_cast<size_t>(sweep_index)]);
  routed.offsets = expert_offsets_[static_cast<size_t>(sweep_index)].data();
  return routed;
}

absl::Status StepRunner::Do(const RouteOp& route, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  const LayerContext context = StageContext(stream, route.stage);
  const RoutedTokens routed = Routed(route.sweep_index);
  StepState& state = states_[op.step_slot];
  const bool sums_probability = route.totals && state.router_auxiliary_loss > 0;
  const RoutingTotals totals = sums_probability ? RoutingTotals::kEntropyAndProbability
                               : route.totals   ? RoutingTotals::kEntropy
                                                : RoutingTotals::kNone;
  MT_RETURN_IF_ERROR(RouteTokens(context, b.weights[route.weight_buffer],
                                 View(op.step_slot, route.micro_batch), b.hidden[route.input_slot],
                                 b.experts, routed, route.backward, totals));
  // The numbers of rows are sizes of the products that follow, so the host waits for them.
  std::vector<int32_t>& offsets = expert_offsets_[static_cast<size_t>(route.sweep_index)];
  const int64_t experts =
      p_.dimensions->layout->model.layers[static_cast<size_t>(context.layer)].experts.count;
  MT_RETURN_IF_ERROR(p_.device->Download(*stream, offsets.data(), routed.device_offsets,
                                         (experts + 1) * int64_t{sizeof(int32_t)}));
  if (!route.totals) return absl::OkStatus();
  double entropy = 0;
  MT_RETURN_IF_ERROR(
      p_.device->Download(*stream, &entropy, routed.entropy_sum, int64_t{sizeof(double)}));
  std::vector<double> probability(sums_probability ? experts : 0);
  MT_RETURN_IF_ERROR(p_.device->Download(*stream, probability.data(), routed.probability,
                                         std::ssize(probability) * int64_t{sizeof(double)}));
  state.router.Add(route.stage, route.micro_batch, offsets, entropy, probability);
  return absl::OkStatus();
}

absl::Status StepRunner::Do(const ExpertsForwardOp& experts, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  LayerContext context = StageContext(stream, experts.stage);
  context.tile = experts.tile;
  const MicroBatchView view = View(op.step_slot, experts.micro_batch);
  if (states_[op.step_slot].continues && view.tokens <= kWholeRowsMax) {
    context.whole_rows = view.tokens;
  }
  const RoutedTokens routed = Routed(experts.sweep_index);
  MT_RETURN_IF_ERROR(
      ExpertsForward(context, b.weights[experts.weight_buffer], view, b.experts, routed));
  if (!experts.last) return absl::OkStatus();
  return FinishExperts(context, view, b.hidden[experts.input_slot], routed,
                       b.hidden[experts.output_slot]);
}

absl::Status StepRunner::Do(const ExpertsBackwardOp& experts, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  LayerContext context = StageContext(stream, experts.stage);
  context.tile = experts.tile;
  float* const gradient = experts.accumulator ? b.accumulators[*experts.accumulator] : nullptr;
  if (experts.first && gradient != nullptr) {
    MT_RETURN_IF_ERROR(ZeroPadding(experts.tile, gradient, *stream));
  }
  const RoutedTokens routed = Routed(experts.sweep_index);
  const bool joins = p_.dimensions->layout->stages[static_cast<size_t>(experts.stage)].joins;
  return ExpertsBackward(context, b.weights[experts.weight_buffer],
                         View(op.step_slot, experts.micro_batch), b.experts, routed,
                         joins ? routed.dsum : b.hidden_gradient[experts.sweep_index], gradient,
                         experts.first);
}

absl::Status StepRunner::Do(const RouterBackwardOp& router, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  const LayerContext context = StageContext(stream, router.stage);
  float* const gradient = router.accumulator ? b.accumulators[*router.accumulator] : nullptr;
  if (router.first && gradient != nullptr) {
    MT_RETURN_IF_ERROR(ZeroPadding(context.tile, gradient, *stream));
  }
  const RoutedTokens routed = Routed(router.sweep_index);
  StepState& state = states_[op.step_slot];
  const bool auxiliary = state.router_auxiliary_loss > 0;
  if (auxiliary) {
    std::vector<float>& dprobabilities =
        state.router_gradients[static_cast<size_t>(router.micro_batch)];
    if (dprobabilities.empty()) {
      dprobabilities =
          state.router.AuxiliaryGradient(router.micro_batch, state.router_auxiliary_loss);
    }
    MT_RETURN_IF_ERROR(p_.device->Upload(*stream, routed.dprobabilities, dprobabilities.data(),
                                         std::ssize(dprobabilities) * int64_t{sizeof(float)}));
  }
  return RouterBackward(
      context, b.weights[router.weight_buffer], View(op.step_slot, router.micro_batch),
      b.hidden[router.input_slot], b.experts, routed, b.hidden_gradient[router.sweep_index],
      auxiliary ? routed.dprobabilities : nullptr, gradient, router.first, router.input_gradient);
}

LayerContext StepRunner::JoinContext(Stream* stream, int stage) const {
  LayerContext context = StageContext(stream, stage);
  context.tile = p_.dimensions->layout->stages[static_cast<size_t>(stage)].join_tile();
  return context;
}

absl::Status StepRunner::Do(const JoinForwardOp& join, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  return JoinForward(JoinContext(stream, join.stage), b.weights[join.weight_buffer],
                     View(op.step_slot, join.micro_batch), b.hidden[join.input_slot], b.experts,
                     Routed(join.sweep_index), b.hidden[join.output_slot]);
}

absl::Status StepRunner::Do(const JoinBackwardOp& join, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  const LayerContext context = JoinContext(stream, join.stage);
  float* const gradient = join.accumulator ? b.accumulators[*join.accumulator] : nullptr;
  if (join.first && gradient != nullptr) {
    MT_RETURN_IF_ERROR(ZeroPadding(context.tile, gradient, *stream));
  }
  return JoinBackward(context, b.weights[join.weight_buffer], View(op.step_slot, join.micro_batch),
                      b.hidden[join.input_slot], b.experts, Routed(join.sweep_index),
                      b.hidden_gradient[join.sweep_index], gradient, join.first,
                      join.input_gradient);
}

absl::Status StepRunner::Do(const HeadOp& head, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  float* const gradient = head.accumulator ? b.accumulators[*head.accumulator] : nullptr;
  if (head.first && gradient != nullptr) {
    MT_RETURN_IF_ERROR(ZeroPadding(head.tile, gradient, *stream));
  }
  const bool pairs = p_.dimensions->shape.pairs;
  const double terms = static_cast<double>(states_[op.step_slot].loss_terms);
  if (pairs) {
    MT_RETURN_IF_ERROR(ComparePairs(op, head.micro_batch, head.weight_buffer, head.input_slot,
                                    /*weighted=*/true, *stream));
  }
  MT_RETURN_IF_ERROR(HeadForwardBackward(
      Context(stream), b.weights[head.weight_buffer], View(op.step_slot, head.micro_batch),
      b.hidden[head.input_slot], pairs ? 1.0f : static_cast<float>(1.0 / terms), b.head, b.losses,
      b.hidden_gradient[head.sweep_index], gradient, head.first, head.input_gradient,
      pairs ? b.loss_weights : nullptr));
  return pairs ? absl::OkStatus() : SumLosses(op.step_slot, head.micro_batch, *stream);
}

absl::Status StepRunner::Do(const HeadLossOp& head, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  if (p_.dimensions->shape.pairs) {
    return ComparePairs(op, head.micro_batch, head.weight_buffer, head.input_slot,
                        /*weighted=*/false, *stream);
  }
  MT_RETURN_IF_ERROR(HeadLoss(Context(stream), b.weights[head.weight_buffer],
                              View(op.step_slot, head.micro_batch), b.hidden[head.input_slot],
                              b.head, b.losses));
  return SumLosses(op.step_slot, head.micro_batch, *stream);
}

absl::Status StepRunner::Do(const HeadLogitsOp& head, const Op& op, Stream* stream) {
  LogitsRequest& request = *states_[op.step_slot].logits;
  const size_t micro_batch = static_cast<size_t>(head.micro_batch);
  if (micro_batch >= request.tokens.size()) return absl::OkStatus();
  const int64_t vocabulary = p_.dimensions->layout->model.vocabulary;
  int64_t before = 0;  // tokens of earlier micro-batches
  for (size_t m = 0; m < micro_batch; ++m)
    before += request.tokens[m].end - request.tokens[m].begin;
  const TokenRange& tokens = request.tokens[micro_batch];
  return HeadLogits(
      Context(stream), p_.device_buffers->weights[head.weight_buffer],
      p_.device_buffers->hidden[head.input_slot], tokens.begin, tokens.end, p_.device_buffers->head,
      [&](int64_t first, int64_t count, const float* logits) {
        float* const to = request.logits.data() + (before + first - tokens.begin) * vocabulary;
        MT_RETURN_IF_ERROR(
            p_.device->Download(*stream, to, logits, count * vocabulary * int64_t{sizeof(float)}));
        CapLogits(p_.dimensions->layout->model, absl::MakeSpan(to, count * vocabulary));
        return absl::OkStatus();
      });
}

absl::Status StepRunner::SumLosses(int slot, int micro_batch, Stream& stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  return p_.device->kernels().Sum(stream, b.losses, states_[slot].micro_batch_tokens[micro_batch],
                                  reinterpret_cast<double*>(b.loss_results[slot]) + micro_batch);
}

absl::Status StepRunner::Do(const EmbedBackwardOp& embed, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  float* const gradient = b.accumulators[embed.accumulator];
  const Resource& source = embed.hidden_gradient;
  // The padding of a tied tile was zeroed for the head.
  if (embed.first && !p_.dimensions->shape.tied) {
    MT_RETURN_IF_ERROR(ZeroPadding(0, gradient, *stream));
  }
  return EmbeddingBackward(Context(stream), View(op.step_slot, embed.micro_batch),
                           source.kind == ResourceKind::kHidden ? b.hidden[source.index]
                                                                : b.hidden_gradient[source.index],
                           gradient, embed.first);
}

absl::Status StepRunner::Do(const FinishGradientOp& finish, const Op&, Stream* stream) {
  Kernels& kernels = p_.device->kernels();
  float* const gradient = p_.device_buffers->accumulators[finish.accumulator];
  const int64_t elements = p_.dimensions->shape.state_elements(finish.tile);
  MT_RETURN_IF_ERROR(kernels.SumOfSquares(*stream, gradient, elements,
                                          p_.device_buffers->norms + finish.accumulator));
  if (p_.dimensions->gradient_dtype == DType::kBF16) {
    return kernels.CastToBf16InPlace(*stream, gradient, elements);
  }
  return absl::OkStatus();
}

// Zeroes the padding between a tile's tensors, and the gradient of frozen ones. No kernel writes
// it, but the norm, the slab and the update read the accumulator as a whole.
absl::Status StepRunner::ZeroPadding(int index, float* gradient, Stream& stream) {
  const TileLayout& tile = p_.dimensions->layout->tiles[index];
  int64_t end = 0;  // of the tensor before
  const auto zero_to = [&](int64_t begin) {
    return begin == end ? absl::OkStatus()
                        : p_.device->kernels().Zero(stream, gradient + end,
                                                    (begin - end) * int64_t{sizeof(float)});
  };
  for (const TensorSpec& tensor : tile.tensors) {
    if (tensor.frozen) continue;
    MT_RETURN_IF_ERROR(zero_to(tensor.offset));
    end = tensor.offset + tensor.elements;
  }
  return zero_to(tile.state_elements());
}

void StepRunner::CollectNorm(int slot) {
  double sum = 0;
  for (int tile = 0; tile < p_.dimensions->shape.tiles(); ++tile) {
    if (p_.dimensions->shape.state_elements(tile) == 0) continue;
    sum += p_.host_buffers->norms[slot][tile];
  }
  states_[slot].gradient_norm = std::sqrt(sum);
}

}  // namespace megatrain

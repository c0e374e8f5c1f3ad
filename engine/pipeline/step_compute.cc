// StepRunner's operations of the compute lane: the calls of the layer templates.
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/experts/expert_join.h"
#include "engine/pipeline/step_runner.h"

namespace megatrain {

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
      Context(stream), embed.weight_buffer ? b.weights[*embed.weight_buffer] : OwnPart(0).weights,
      View(op.step_slot, embed.micro_batch), b.hidden[embed.output_slot]);
}

absl::Status StepRunner::Do(const LayerForwardOp& layer, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  LayerContext context = StageContext(stream, layer.stage);
  if (layer.cache != CacheUse::kNone) {
    context.cache = {.data = b.cache[static_cast<size_t>(context.layer)],
                     .sequences = p_.dimensions->cache_sequences,
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
  const MicroBatchView view = View(op.step_slot, route.micro_batch);
  MT_RETURN_IF_ERROR(RouteTokens(context, b.weights[route.weight_buffer], view,
                                 b.hidden[route.input_slot], b.experts, routed, route.backward,
                                 totals));
  // The numbers of rows are sizes of the products that follow, so the host waits for them.
  std::vector<int32_t>& offsets = expert_offsets_[static_cast<size_t>(route.sweep_index)];
  const ExpertsDescription& e =
      p_.dimensions->layout->model.layers[static_cast<size_t>(context.layer)].experts;
  MT_RETURN_IF_ERROR(p_.device->Download(*stream, offsets.data(), routed.device_offsets,
                                         (e.count + 1) * int64_t{sizeof(int32_t)}));
  if (!route.totals) return absl::OkStatus();
  std::vector<int32_t> padding;  // its choices
  for (const auto& [begin, end] : view.padding) {
    const size_t before = padding.size(), more = static_cast<size_t>((end - begin) * e.chosen);
    padding.resize(before + more);
    MT_RETURN_IF_ERROR(p_.device->Download(*stream, &padding[before],
                                           routed.choice + begin * e.chosen,
                                           static_cast<int64_t>(more * sizeof(int32_t))));
  }
  double entropy = 0;
  MT_RETURN_IF_ERROR(
      p_.device->Download(*stream, &entropy, routed.entropy_sum, int64_t{sizeof(double)}));
  std::vector<double> probability(sums_probability ? e.count : 0);
  MT_RETURN_IF_ERROR(p_.device->Download(*stream, probability.data(), routed.probability,
                                         std::ssize(probability) * int64_t{sizeof(double)}));
  state.router.Add(route.stage, route.micro_batch, offsets, padding, entropy, probability);
  return absl::OkStatus();
}

absl::Status StepRunner::Do(const ExpertsForwardOp& experts, const Op& op, Stream* stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  LayerContext context = StageContext(stream, experts.stage);
  context.tile = experts.tile;
  const MicroBatchView view = View(op.step_slot, experts.micro_batch);
  if (states_[op.step_slot].attends_to_cache && view.tokens <= kWholeRowsMax) {
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
  if (states_[op.step_slot].logits == nullptr) return absl::OkStatus();  // another rank's are taken
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
  const PipelineShape& shape = p_.dimensions->shape;
  Kernels& kernels = p_.device->kernels();
  const float* const gradient = p_.device_buffers->accumulators[finish.accumulator];
  double* square = p_.device_buffers->norms + finish.accumulator * shape.folds;
  for (int i = 0; i < shape.folds; ++i, ++square) {
    const int block = shape.rank * shape.folds + i;
    const int64_t begin = shape.block_cut(finish.tile, block);
    const int64_t elements = shape.block_cut(finish.tile, block + 1) - begin;
    MT_RETURN_IF_ERROR(elements == 0
                           ? kernels.Zero(*stream, square, sizeof(double))
                           : kernels.SumOfSquares(*stream, gradient + begin, elements, square));
  }
  const int64_t elements = shape.shard_elements(finish.tile);
  if (elements == 0 || p_.dimensions->gradient_dtype != DType::kBF16) return absl::OkStatus();
  return kernels.CastToBf16InPlace(*stream, ShardGradient(finish.tile, finish.accumulator),
                                   elements);
}

absl::Status StepRunner::Do(const ZeroGradientOp& zero, const Op&, Stream* stream) {
  return p_.device->kernels().Zero(
      *stream, p_.device_buffers->accumulators[zero.accumulator],
      p_.dimensions->shape.state_elements(zero.tile) * int64_t{sizeof(float)});
}

absl::Status StepRunner::Do(const JoinGradientsOp& join, const Op&, Stream* stream) {
  const int64_t elements = p_.dimensions->shape.state_elements(join.tile);
  // Rows spread over threads.
  constexpr int64_t kRow = 4096;
  const auto add = [&](int64_t begin, int64_t rows, int64_t width) {
    float* const sum = p_.device_buffers->accumulators[join.accumulator] + begin;
    const float* const addend = p_.device_buffers->accumulators[join.addend] + begin;
    AddArgs args;
    args.rows = rows;
    args.width = width;
    args.a = {DType::kF32, sum, width};
    args.b = {DType::kF32, addend, width};
    args.y = sum;
    args.y_stride = width;
    return rows * width == 0 ? absl::OkStatus() : p_.device->kernels().Add(*stream, args);
  };
  MT_RETURN_IF_ERROR(add(0, elements / kRow, kRow));
  return add(elements / kRow * kRow, 1, elements % kRow);
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

}  // namespace megatrain

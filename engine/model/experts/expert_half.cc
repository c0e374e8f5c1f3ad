#include "engine/model/experts/expert_half.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "engine/base/status.h"
#include "engine/device/device.h"
#include "engine/model/experts/expert_products.h"
#include "engine/model/experts/shared_expert.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {
namespace {

const ExpertsDescription& Experts(const BoundLayer& l) { return l.d.experts; }

// --- The router.

bool HasOwnInput(const BoundLayer& l) { return l.o.router_input_scale >= 0; }
// The rows that logits are projected from, and the factor of the product.
const void* RouterInput(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                        const RoutedTokens& r) {
  return HasOwnInput(l) ? s.in : l.Rows(r.normed, chunk, l.hidden);
}
double RouterScale(const BoundLayer& l) {
  return HasOwnInput(l) ? 1.0 / std::sqrt(static_cast<double>(l.hidden)) : 1.0;
}

absl::Status Logits(const BoundLayer& l, const Chunk& chunk, const void* x, const ExpertScratch& s,
                    const RoutedTokens& r) {
  if (HasOwnInput(l)) {
    MT_RETURN_IF_ERROR(l.kernels.RmsNorm(
        l.stream,
        l.NormArgs(chunk, l.Rows(x, chunk, l.hidden), l.o.router_input_scale, s.in, s.rstd)));
  }
  return l.Product(RouterInput(l, chunk, s, r), l.o.router,
                   {.rows = chunk.tokens, .in = l.hidden, .out = Experts(l).count}, s.logits,
                   {.bias = l.o.router_bias, .scale = RouterScale(l), .out_dtype = DType::kF32});
}

RouteArgs Route(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                const RoutedTokens& r) {
  const ExpertsDescription& e = Experts(l);
  RouteArgs args;
  args.tokens = chunk.tokens;
  args.experts = e.count;
  args.chosen = e.chosen;
  args.scores = e.router.scores;
  args.normalized = e.router.normalized;
  args.scale = static_cast<float>(e.router.scale);
  args.groups = e.router.groups;
  args.chosen_groups = e.router.chosen_groups;
  args.logits = s.logits;
  if (l.o.router_correction >= 0) {
    args.correction = static_cast<const float*>(l.Offset(l.weights, l.o.router_correction));
  }
  if (l.o.router_expert_scales >= 0) {
    args.dtype = l.context.dtype;
    args.expert_scales = l.Offset(l.weights, l.o.router_expert_scales);
  }
  args.choice = r.choice + chunk.begin * e.chosen;
  args.weights = r.weights + chunk.begin * e.chosen;
  return args;
}

// Calls `run` for the chunk's runs of tokens that are all padding or all none, in their order.
// `padding` is MicroBatchView's, or empty to take all tokens as one run that is none.
absl::Status ForRuns(const Chunk& chunk, absl::Span<const std::pair<int32_t, int32_t>> padding,
                     absl::FunctionRef<absl::Status(const Chunk& part, bool is_padding)> run) {
  const int64_t end = chunk.begin + chunk.tokens;
  int64_t begin = chunk.begin;
  const auto run_to = [&](int64_t to, bool is_padding) {
    to = std::clamp(to, begin, end);
    const Chunk part = {begin, to - begin};
    begin = to;
    return part.tokens == 0 ? absl::OkStatus() : run(part, is_padding);
  };
  for (const auto& [first, last] : padding) {
    MT_RETURN_IF_ERROR(run_to(first, false));
    MT_RETURN_IF_ERROR(run_to(last, true));
  }
  return run_to(end, false);
}

// Adds the softmax of the chunk's tokens to r.probability.
absl::Status AddProbability(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                            const RoutedTokens& r) {
  return ForRuns(chunk, l.batch.padding, [&](const Chunk& part, bool is_padding) {
    if (is_padding) return absl::OkStatus();
    RouterSumsArgs sums;
    sums.tokens = part.tokens;
    sums.experts = Experts(l).count;
    sums.logits = s.logits + (part.begin - chunk.begin) * sums.experts;
    sums.probability = r.probability;
    return l.kernels.RouterSums(l.stream, sums);
  });
}

absl::Status SumEntropy(const BoundLayer& l, const RoutedTokens& r) {
  for (const auto& [begin, end] : l.batch.padding) {
    MT_RETURN_IF_ERROR(
        l.kernels.Zero(l.stream, r.entropy + begin, (end - begin) * int64_t{sizeof(float)}));
  }
  return l.kernels.Sum(l.stream, r.entropy, l.batch.tokens, r.entropy_sum);
}

// Computes s.dlogits and s.dexpert_scales of the chunk.
absl::Status LogitGradients(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                            const RoutedTokens& r, const float* dprobabilities) {
  const auto padding = dprobabilities == nullptr ? decltype(l.batch.padding)() : l.batch.padding;
  return ForRuns(chunk, padding, [&](const Chunk& part, bool is_padding) {
    const int64_t logits = (part.begin - chunk.begin) * Experts(l).count;
    RouteBackwardArgs route;
    route.forward = Route(l, part, s, r);
    route.forward.logits += logits;
    route.dweights = r.dweights + part.begin * Experts(l).chosen;
    route.dprobabilities = is_padding ? nullptr : dprobabilities;
    route.dtype = l.context.dtype;
    route.dlogits = l.Offset(s.dlogits, logits);
    if (s.dexpert_scales != nullptr) route.dexpert_scales = s.dexpert_scales + logits;
    return l.kernels.RouteBackward(l.stream, route);
  });
}

// Adds the gradient by the experts' factors, a sum over tokens.
absl::Status ExpertScalesBackward(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                                  const TileGradient& gradient) {
  const int64_t begin = l.o.router_expert_scales, experts = Experts(l).count;
  for (const ElementRange& part : TrainedRanges(l.tile, {begin, begin + experts})) {
    MT_RETURN_IF_ERROR(l.kernels.BiasBackward(
        l.stream, DType::kF32, chunk.tokens, part.end - part.begin,
        s.dexpert_scales + (part.begin - begin), experts, gradient.At(part.begin), gradient.add));
  }
  return absl::OkStatus();
}

// Adds the gradients of the router's weights, and that by its input: to r.sum, or if it is the
// router's own to `dh`, the chunk's rows.
absl::Status LogitsBackward(const BoundLayer& l, const Chunk& chunk, const void* x,
                            const ExpertScratch& s, const RoutedTokens& r, void* dh,
                            const TileGradient& gradient) {
  const int64_t experts = Experts(l).count;
  const double scale = RouterScale(l);
  if (l.o.router_bias >= 0) {
    MT_RETURN_IF_ERROR(l.BiasGradient(chunk, s.dlogits, experts, l.o.router_bias, gradient));
  }
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, RouterInput(l, chunk, s, r), l.hidden, s.dlogits,
                                            experts, l.o.router, gradient, scale));
  if (!HasOwnInput(l)) {
    float* const sum = r.sum + chunk.begin * l.hidden;
    return l.ProductGradient(s.dlogits, l.o.router,
                             {.rows = chunk.tokens, .in = l.hidden, .out = experts}, sum,
                             {.addend = sum, .out_dtype = DType::kF32});
  }
  if (!gradient.input && !l.Trains(l.o.router_input_scale, l.hidden)) return absl::OkStatus();
  MT_RETURN_IF_ERROR(
      l.LinearInputGradient(chunk, s.dlogits, experts, l.o.router, l.hidden, s.out, scale));
  return l.kernels.RmsNormBackward(
      l.stream, l.NormBackwardArgs(chunk, l.Rows(x, chunk, l.hidden), l.o.router_input_scale,
                                   s.rstd, s.out, dh, gradient));
}

}  // namespace

absl::Status RouteTokens(const LayerContext& context, const void* weights,
                         const MicroBatchView& batch, const void* x, const ExpertScratch& scratch,
                         const RoutedTokens& r, bool backward, RoutingTotals totals) {
  const BoundExperts bound(context, weights, batch);
  const BoundLayer& l = bound.layer;
  const bool sums_probability = totals == RoutingTotals::kEntropyAndProbability;
  const bool shared = !backward && Experts(l).shared_intermediate > 0;
  if (sums_probability) {
    MT_RETURN_IF_ERROR(
        l.kernels.Zero(l.stream, r.probability, Experts(l).count * int64_t{sizeof(double)}));
  }
  if (Experts(l).shared_gate) MT_RETURN_IF_ERROR(NumberSharedRows(l, r));
  if (!shared || Experts(l).shared_gate) {
    MT_RETURN_IF_ERROR(
        l.kernels.Zero(l.stream, r.sum, l.batch.tokens * l.hidden * int64_t{sizeof(float)}));
  }
  MT_RETURN_IF_ERROR(l.ForChunks([&](const Chunk& chunk) {
    MT_RETURN_IF_ERROR(l.kernels.RmsNorm(
        l.stream, l.NormArgs(chunk, l.Rows(x, chunk, l.hidden), l.o.feed_forward_norm,
                             l.Rows(r.normed, chunk, l.hidden), r.rstd + chunk.begin)));
    MT_RETURN_IF_ERROR(Logits(l, chunk, x, scratch, r));
    RouteArgs route = Route(l, chunk, scratch, r);
    if (totals != RoutingTotals::kNone) route.entropy = r.entropy + chunk.begin;
    MT_RETURN_IF_ERROR(l.kernels.Route(l.stream, route));
    if (sums_probability) MT_RETURN_IF_ERROR(AddProbability(l, chunk, scratch, r));
    if (Experts(l).shared_gate) MT_RETURN_IF_ERROR(GateShared(l, chunk, scratch, r));
    return shared ? SharedForward(l, chunk, scratch, r) : absl::OkStatus();
  }));
  if (totals != RoutingTotals::kNone) MT_RETURN_IF_ERROR(SumEntropy(l, r));
  SortAssignmentsArgs sort;
  sort.tokens = l.batch.tokens;
  sort.experts = Experts(l).count;
  sort.chosen = Experts(l).chosen;
  sort.choice = r.choice;
  sort.offsets = r.device_offsets;
  sort.assignments = r.assignments;
  sort.rows = r.token_rows;
  return l.kernels.SortAssignments(l.stream, sort);
}

absl::Status ExpertsForward(const LayerContext& context, const void* weights,
                            const MicroBatchView& batch, const ExpertScratch& scratch,
                            const RoutedTokens& r) {
  const BoundExperts bound(context, weights, batch);
  const BoundLayer& l = bound.layer;
  return ForPacks(l, r, [&](const Pack& pack) {
    MT_RETURN_IF_ERROR(Gather(l, r, pack, r.normed, /*weights=*/nullptr, scratch.in));
    MT_RETURN_IF_ERROR(Products(l, r, pack, GateUp(l), scratch.in, scratch.gate_up));
    MT_RETURN_IF_ERROR(Glu(l, scratch, pack.rows, Experts(l).intermediate));
    MT_RETURN_IF_ERROR(Products(l, r, pack, Down(l), scratch.activated, scratch.out));
    return AddRows(l, r, pack, scratch.out, r.weights);
  });
}

absl::Status FinishExperts(const LayerContext& context, const MicroBatchView& batch, const void* x,
                           const RoutedTokens& r, void* y) {
  const int64_t hidden = context.layout->model.hidden;
  AddArgs args;
  args.rows = batch.tokens;
  args.width = hidden;
  args.a = {DType::kF32, r.sum, hidden};
  args.b = {context.dtype, x, hidden};
  args.y_dtype = context.dtype;
  args.y = y;
  args.y_stride = hidden;
  return context.kernels->Add(*context.stream, args);
}

absl::Status ExpertsBackward(const LayerContext& context, const void* weights,
                             const MicroBatchView& batch, const ExpertScratch& s,
                             const RoutedTokens& r, const void* dy, float* gradient, bool first) {
  const BoundExperts bound(context, weights, batch);
  const BoundLayer& l = bound.layer;
  const ExpertMatrix gate_up = GateUp(l), down = Down(l);
  if (first && gradient != nullptr) {
    MT_RETURN_IF_ERROR(ZeroGradientsWithoutRows(l, r, gate_up, gradient));
    MT_RETURN_IF_ERROR(ZeroGradientsWithoutRows(l, r, down, gradient));
  }
  return ForPacks(l, r, [&](const Pack& pack) {
    MT_RETURN_IF_ERROR(Gather(l, r, pack, r.normed, /*weights=*/nullptr, s.in));
    MT_RETURN_IF_ERROR(Products(l, r, pack, gate_up, s.in, s.gate_up));
    // The unit's output, for the gradient by the router's weights.
    MT_RETURN_IF_ERROR(Glu(l, s, pack.rows, down.in));
    MT_RETURN_IF_ERROR(Gather(l, r, pack, dy, /*weights=*/nullptr, s.out));
    MT_RETURN_IF_ERROR(InputGradients(l, r, pack, down, s.out, s.dactivated));
    WeighRowsArgs weigh;
    weigh.dtype = l.context.dtype;
    weigh.width = down.in;
    weigh.range = RangeOf(l, r, pack);
    weigh.weights = r.weights;
    weigh.out = s.activated;
    weigh.dout = s.dactivated;
    weigh.dweights = r.dweights;
    if (down.bias >= 0) {
      weigh.bias = l.Offset(l.weights, down.bias);
      weigh.bias_width = l.hidden;
      weigh.dy = s.out;
      weigh.choice = r.choice;
      weigh.first_expert = l.tile.first_expert;
    }
    MT_RETURN_IF_ERROR(l.kernels.WeighRows(l.stream, weigh));
    MT_RETURN_IF_ERROR(GluBackward(l, s, pack.rows, down.in));
    MT_RETURN_IF_ERROR(WeightGradients(l, r, pack, gate_up, s.in, s.gate_up, gradient, first));
    if (gradient != nullptr) {
      MT_RETURN_IF_ERROR(Gather(l, r, pack, dy, r.weights, s.out));
      MT_RETURN_IF_ERROR(WeightGradients(l, r, pack, down, s.dactivated, s.out, gradient, first));
    }
    MT_RETURN_IF_ERROR(InputGradients(l, r, pack, gate_up, s.gate_up, s.out));
    return AddRows(l, r, pack, s.out, /*weights=*/nullptr);
  });
}

absl::Status RouterBackward(const LayerContext& context, const void* weights,
                            const MicroBatchView& batch, const void* x, const ExpertScratch& s,
                            const RoutedTokens& r, void* dh, const float* dprobabilities,
                            float* gradient, bool first, bool input_gradient) {
  const BoundExperts bound(context, weights, batch);
  const BoundLayer& l = bound.layer;
  return l.ForChunks([&](const Chunk& chunk) {
    const TileGradient sums = {gradient, !(first && chunk.begin == 0), input_gradient};
    void* const normed = l.Rows(r.normed, chunk, l.hidden);
    void* const dh_rows = l.Rows(dh, chunk, l.hidden);
    float* const sum = r.sum + chunk.begin * l.hidden;
    MT_RETURN_IF_ERROR(Logits(l, chunk, x, s, r));
    MT_RETURN_IF_ERROR(LogitGradients(l, chunk, s, r, dprobabilities));
    if (l.o.router_expert_scales >= 0) {
      MT_RETURN_IF_ERROR(ExpertScalesBackward(l, chunk, s, sums));
    }
    if (Experts(l).shared_intermediate > 0) {
      MT_RETURN_IF_ERROR(SharedBackward(l, chunk, s, r, dh_rows, sums));
    }
    MT_RETURN_IF_ERROR(LogitsBackward(l, chunk, x, s, r, dh_rows, sums));
    if (!input_gradient && !l.Trains(l.o.feed_forward_norm, l.hidden)) return absl::OkStatus();
    AddArgs round;
    round.rows = chunk.tokens;
    round.width = l.hidden;
    round.a = {DType::kF32, sum, l.hidden};
    round.y_dtype = l.context.dtype;
    round.y = normed;
    round.y_stride = l.hidden;
    MT_RETURN_IF_ERROR(l.kernels.Add(l.stream, round));
    return l.kernels.RmsNormBackward(
        l.stream, l.NormBackwardArgs(chunk, l.Rows(x, chunk, l.hidden), l.o.feed_forward_norm,
                                     r.rstd + chunk.begin, normed, dh_rows, sums));
  });
}

}  // namespace megatrain

#include "engine/model/experts/shared_expert.h"

#include "engine/base/status.h"
#include "engine/device/device.h"
#include "engine/model/experts/expert_products.h"

namespace megatrain {
namespace {

int64_t Width(const BoundLayer& l) { return l.d.experts.shared_intermediate; }
bool HasGate(const BoundLayer& l) { return l.d.experts.shared_gate; }

absl::Status GateUp(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                    const RoutedTokens& r) {
  return l.Linear(chunk, l.Rows(r.normed, chunk, l.hidden), l.hidden, l.o.gate_up, 2 * Width(l),
                  s.gate_up);
}

// The gate's logits go where those of the router were.
absl::Status Logits(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                    const RoutedTokens& r) {
  return l.Product(l.Rows(r.normed, chunk, l.hidden), l.o.shared_gate,
                   {.rows = chunk.tokens, .in = l.hidden, .out = 1}, s.logits,
                   {.out_dtype = DType::kF32});
}

RouteArgs Route(const Chunk& chunk, const ExpertScratch& s, const RoutedTokens& r) {
  RouteArgs args;
  args.tokens = chunk.tokens;
  args.experts = args.chosen = 1;
  args.scores = RouterScores::kSigmoid;
  args.normalized = false;
  args.logits = s.logits;
  args.choice = r.shared.choice + chunk.begin;
  args.weights = r.shared.weights + chunk.begin;
  return args;
}

ExpertRows RangeOf(const BoundLayer& l, const Chunk& chunk, const RoutedTokens& r) {
  return {.first = chunk.begin,
          .rows = chunk.tokens,
          .tokens = l.batch.tokens,
          .chosen = 1,
          .assignments = r.shared.assignments,
          .token_rows = r.shared.token_rows};
}

// Adds s.out times the gates' weights to r.sum.
absl::Status AddGated(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                      const RoutedTokens& r) {
  AddRowsArgs args;
  args.dtype = l.context.dtype;
  args.width = l.hidden;
  args.range = RangeOf(l, chunk, r);
  args.x = s.out;
  args.weights = r.shared.weights;
  args.sum = r.sum;
  return l.kernels.AddRows(l.stream, args);
}

// Computes the gradient by the gates' weights from s.dactivated and s.activated, and multiplies
// s.dactivated by the weights.
absl::Status Weigh(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                   const RoutedTokens& r) {
  WeighRowsArgs args;
  args.dtype = l.context.dtype;
  args.width = Width(l);
  args.range = RangeOf(l, chunk, r);
  args.weights = r.shared.weights;
  args.out = s.activated;
  args.dout = s.dactivated;
  args.dweights = r.shared.dweights;
  return l.kernels.WeighRows(l.stream, args);
}

// Writes `dy`, the chunk's rows, times the gates' weights to s.out.
absl::Status WeighedGradient(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                             const RoutedTokens& r, const void* dy) {
  GatherRowsArgs args;
  args.dtype = l.context.dtype;
  args.width = l.hidden;
  args.range = RangeOf(l, chunk, r);
  // Rows are tokens of the whole micro-batch.
  args.x = l.Offset(dy, -chunk.begin * l.hidden);
  args.weights = r.shared.weights;
  args.out = s.out;
  return l.kernels.GatherRows(l.stream, args);
}

// REQUIRES: Weigh. Takes the place of the unit's output, as s.dlogits are still the router's.
absl::Status GateBackward(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                          const RoutedTokens& r, const TileGradient& gradient) {
  void* const dlogits = s.activated;
  MT_RETURN_IF_ERROR(Logits(l, chunk, s, r));
  RouteBackwardArgs args;
  args.forward = Route(chunk, s, r);
  args.dweights = r.shared.dweights + chunk.begin;
  args.dtype = l.context.dtype;
  args.dlogits = dlogits;
  MT_RETURN_IF_ERROR(l.kernels.RouteBackward(l.stream, args));
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, l.Rows(r.normed, chunk, l.hidden), l.hidden,
                                            dlogits, 1, l.o.shared_gate, gradient));
  float* const sum = r.sum + chunk.begin * l.hidden;
  return l.ProductGradient(dlogits, l.o.shared_gate,
                           {.rows = chunk.tokens, .in = l.hidden, .out = 1}, sum,
                           {.addend = sum, .out_dtype = DType::kF32});
}

}  // namespace

absl::Status NumberSharedRows(const BoundLayer& l, const RoutedTokens& r) {
  MT_RETURN_IF_ERROR(
      l.kernels.Zero(l.stream, r.shared.choice, l.batch.tokens * int64_t{sizeof(int32_t)}));
  SortAssignmentsArgs args;
  args.tokens = l.batch.tokens;
  args.experts = args.chosen = 1;
  args.choice = r.shared.choice;
  args.offsets = r.shared.offsets;
  args.assignments = r.shared.assignments;
  args.rows = r.shared.token_rows;
  return l.kernels.SortAssignments(l.stream, args);
}

absl::Status GateShared(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                        const RoutedTokens& r) {
  MT_RETURN_IF_ERROR(Logits(l, chunk, s, r));
  return l.kernels.Route(l.stream, Route(chunk, s, r));
}

absl::Status SharedForward(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                           const RoutedTokens& r) {
  MT_RETURN_IF_ERROR(GateUp(l, chunk, s, r));
  MT_RETURN_IF_ERROR(Glu(l, s, chunk.tokens, Width(l)));
  const ProductShape down = {.rows = chunk.tokens, .in = Width(l), .out = l.hidden};
  if (HasGate(l)) {
    MT_RETURN_IF_ERROR(l.Product(s.activated, l.o.down, down, s.out));
    return AddGated(l, chunk, s, r);
  }
  return l.Product(s.activated, l.o.down, down, r.sum + chunk.begin * l.hidden,
                   {.out_dtype = DType::kF32});
}

absl::Status SharedBackward(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                            const RoutedTokens& r, const void* dy, const TileGradient& gradient) {
  const int64_t width = Width(l);
  MT_RETURN_IF_ERROR(GateUp(l, chunk, s, r));
  MT_RETURN_IF_ERROR(l.LinearInputGradient(chunk, dy, l.hidden, l.o.down, width, s.dactivated));
  if (HasGate(l)) {
    // The unit's output, for the gradient by the gates.
    MT_RETURN_IF_ERROR(Glu(l, s, chunk.tokens, width));
    MT_RETURN_IF_ERROR(Weigh(l, chunk, s, r));
    MT_RETURN_IF_ERROR(GateBackward(l, chunk, s, r, gradient));
    MT_RETURN_IF_ERROR(WeighedGradient(l, chunk, s, r, dy));
  }
  MT_RETURN_IF_ERROR(GluBackward(l, s, chunk.tokens, width));
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, s.dactivated, width, HasGate(l) ? s.out : dy,
                                            l.hidden, l.o.down, gradient));
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, l.Rows(r.normed, chunk, l.hidden), l.hidden,
                                            s.gate_up, 2 * width, l.o.gate_up, gradient));
  float* const sum = r.sum + chunk.begin * l.hidden;
  return l.ProductGradient(s.gate_up, l.o.gate_up,
                           {.rows = chunk.tokens, .in = l.hidden, .out = 2 * width}, sum,
                           {.addend = sum, .out_dtype = DType::kF32});
}

}  // namespace megatrain

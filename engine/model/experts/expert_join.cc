#include "engine/model/experts/expert_join.h"

#include "engine/base/status.h"
#include "engine/device/device.h"
#include "engine/model/experts/expert_products.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {
namespace {

// The norms of a chunk: of the dense unit's input, of both results, and of their sum.
enum Norm { kInput, kDense, kExperts, kSum };

float* Rstd(const Chunk& chunk, const ExpertScratch& s, Norm norm) {
  return s.rstd + norm * chunk.tokens;
}

GluArgs Unit(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s) {
  GluArgs args;
  args.dtype = l.context.dtype;
  args.activation = l.d.feed_forward.activation;
  args.tokens = chunk.tokens;
  args.width = l.d.feed_forward.intermediate;
  args.gate_up = s.gate_up;
  args.out = s.activated;
  return args;
}

// s.dactivated has the gradient by the unit's output on entry, and the output on return.
absl::Status UnitBackward(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s) {
  const GluArgs forward = Unit(l, chunk, s);
  GluBackwardArgs args;
  args.dtype = forward.dtype;
  args.activation = forward.activation;
  args.tokens = forward.tokens;
  args.width = forward.width;
  args.gate_up = args.dgate_up = s.gate_up;
  args.dout = s.dactivated;
  return l.kernels.GluBackward(l.stream, args);
}

// Rounds the experts' sum, which their norm takes, to s.rounded.
absl::Status RoundExperts(const BoundLayer& l, const Chunk& chunk, const ExpertScratch& s,
                          const RoutedTokens& r) {
  AddArgs args;
  args.rows = chunk.tokens;
  args.width = l.hidden;
  args.a = {DType::kF32, r.sum + chunk.begin * l.hidden, l.hidden};
  args.y_dtype = l.context.dtype;
  args.y = s.rounded;
  args.y_stride = l.hidden;
  return l.kernels.Add(l.stream, args);
}

// Computes what is added to x: its input s.joined, the sum of both normed results, from x and
// s.rounded, and with it s.in, s.gate_up, s.activated and s.out, the dense unit's.
absl::Status JoinResults(const BoundLayer& l, const Chunk& chunk, const void* x,
                         const ExpertScratch& s) {
  const int64_t width = l.d.feed_forward.intermediate;
  MT_RETURN_IF_ERROR(l.kernels.RmsNorm(
      l.stream, l.NormArgs(chunk, x, l.o.feed_forward_norm, s.in, Rstd(chunk, s, kInput))));
  MT_RETURN_IF_ERROR(l.Linear(chunk, s.in, l.hidden, l.o.gate_up, 2 * width, s.gate_up));
  MT_RETURN_IF_ERROR(l.kernels.Glu(l.stream, Unit(l, chunk, s)));
  MT_RETURN_IF_ERROR(l.Linear(chunk, s.activated, width, l.o.down, l.hidden, s.out));
  MT_RETURN_IF_ERROR(l.kernels.RmsNorm(
      l.stream, l.NormArgs(chunk, s.out, l.o.dense_post_norm, s.joined, Rstd(chunk, s, kDense))));
  RmsNormArgs experts =
      l.NormArgs(chunk, s.rounded, l.o.experts_post_norm, s.joined, Rstd(chunk, s, kExperts));
  experts.addend = s.joined;
  return l.kernels.RmsNorm(l.stream, experts);
}

}  // namespace

absl::Status JoinForward(const LayerContext& context, const void* weights,
                         const MicroBatchView& batch, const void* x, const ExpertScratch& s,
                         const RoutedTokens& r, void* y) {
  const BoundExperts bound(context, weights, batch);
  const BoundLayer& l = bound.layer;
  return l.ForChunks([&](const Chunk& chunk) {
    const void* const x_rows = l.Rows(x, chunk, l.hidden);
    void* const y_rows = l.Rows(y, chunk, l.hidden);
    MT_RETURN_IF_ERROR(RoundExperts(l, chunk, s, r));
    MT_RETURN_IF_ERROR(JoinResults(l, chunk, x_rows, s));
    RmsNormArgs sum =
        l.NormArgs(chunk, s.joined, l.o.feed_forward_post_norm, y_rows, Rstd(chunk, s, kSum));
    sum.addend = x_rows;
    MT_RETURN_IF_ERROR(l.kernels.RmsNorm(l.stream, sum));
    return l.ScaleOutput(chunk, y_rows);
  });
}

absl::Status JoinBackward(const LayerContext& context, const void* weights,
                          const MicroBatchView& batch, const void* x, const ExpertScratch& s,
                          const RoutedTokens& r, void* dh, float* gradient, bool first,
                          bool input_gradient) {
  const BoundExperts bound(context, weights, batch);
  const BoundLayer& l = bound.layer;
  const int64_t width = l.d.feed_forward.intermediate;
  MT_RETURN_IF_ERROR(l.ForChunks([&](const Chunk& chunk) {
    const TileGradient sums = {gradient, !(first && chunk.begin == 0), input_gradient};
    const void* const x_rows = l.Rows(x, chunk, l.hidden);
    void* const dh_rows = l.Rows(dh, chunk, l.hidden);
    // Writes the gradient by the norm's input `in` from `dy`, which may be the same rows as `dx`.
    const auto norm_backward = [&](Norm norm, int64_t weight, const void* in, const void* dy,
                                   void* dx, bool add) {
      RmsNormBackwardArgs args =
          l.NormBackwardArgs(chunk, in, weight, Rstd(chunk, s, norm), dy, dx, sums);
      args.accumulate = add;
      return l.kernels.RmsNormBackward(l.stream, args);
    };
    MT_RETURN_IF_ERROR(l.ScaleOutput(chunk, dh_rows));
    MT_RETURN_IF_ERROR(RoundExperts(l, chunk, s, r));
    MT_RETURN_IF_ERROR(JoinResults(l, chunk, x_rows, s));
    // For its statistics.
    MT_RETURN_IF_ERROR(l.kernels.RmsNorm(
        l.stream,
        l.NormArgs(chunk, s.joined, l.o.feed_forward_post_norm, s.djoined, Rstd(chunk, s, kSum))));
    MT_RETURN_IF_ERROR(norm_backward(kSum, l.o.feed_forward_post_norm, s.joined, dh_rows, s.djoined,
                                     /*add=*/false));
    MT_RETURN_IF_ERROR(norm_backward(kExperts, l.o.experts_post_norm, s.rounded, s.djoined,
                                     l.Rows(r.dsum, chunk, l.hidden), /*add=*/false));
    MT_RETURN_IF_ERROR(
        norm_backward(kDense, l.o.dense_post_norm, s.out, s.djoined, s.djoined, /*add=*/false));
    MT_RETURN_IF_ERROR(
        l.LinearInputGradient(chunk, s.djoined, l.hidden, l.o.down, width, s.dactivated));
    MT_RETURN_IF_ERROR(UnitBackward(l, chunk, s));
    MT_RETURN_IF_ERROR(
        l.LinearWeightGradient(chunk, s.dactivated, width, s.djoined, l.hidden, l.o.down, sums));
    MT_RETURN_IF_ERROR(
        l.LinearWeightGradient(chunk, s.in, l.hidden, s.gate_up, 2 * width, l.o.gate_up, sums));
    if (!input_gradient && !l.Trains(l.o.feed_forward_norm, l.hidden)) return absl::OkStatus();
    MT_RETURN_IF_ERROR(
        l.LinearInputGradient(chunk, s.gate_up, 2 * width, l.o.gate_up, l.hidden, s.in));
    return norm_backward(kInput, l.o.feed_forward_norm, x_rows, s.in, dh_rows, /*add=*/true);
  }));
  return l.kernels.Zero(l.stream, r.sum, l.batch.tokens * l.hidden * int64_t{sizeof(float)});
}

}  // namespace megatrain

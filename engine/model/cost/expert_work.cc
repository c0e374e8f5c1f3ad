#include "engine/model/cost/expert_work.h"

#include <algorithm>
#include <cmath>

namespace megatrain {
namespace {

constexpr double kF32Bytes = sizeof(float);

struct Sizes {
  explicit Sizes(const WorkShape& shape)
      : layer(shape.model->layers[static_cast<size_t>(shape.layer)]),
        d(layer.experts),
        tokens(static_cast<double>(shape.tokens)),
        e(static_cast<double>(DTypeBytes(shape.dtype))),
        hidden(static_cast<double>(shape.model->hidden)),
        experts(static_cast<double>(d.count)),
        chosen(static_cast<double>(d.chosen)),
        intermediate(static_cast<double>(d.intermediate)),
        shared(static_cast<double>(d.shared_intermediate)),
        dense(static_cast<double>(layer.feed_forward.intermediate)),
        chunks(std::ceil(tokens / static_cast<double>(shape.layer_chunk_tokens))) {
    // The last tile may have fewer.
    tile_experts = static_cast<double>(std::min(d.experts_per_tile, d.count));
    rows = tokens * chosen * tile_experts / experts;
    packs = std::max(1.0, std::ceil(rows / static_cast<double>(shape.layer_chunk_tokens)));
  }

  double router() const { return hidden * experts; }
  double shared_unit() const { return 3 * hidden * shared + (d.shared_gate ? hidden : 0); }
  double tile_unit() const { return 3 * hidden * intermediate; }  // of one expert
  double dense_unit() const { return 3 * hidden * dense; }
  bool has_own_input() const { return !d.router.input_scale.empty(); }

  const LayerDescription& layer;
  const ExpertsDescription& d;
  double tokens, e, hidden, experts, chosen, intermediate, shared, dense, chunks;
  double tile_experts = 0, rows = 0, packs = 0;
};

LayerWork Products(double rows, double parameters, double launches) {
  return {.product_flops = 2 * rows * parameters, .launches = launches};
}
LayerWork Pass(double bytes, double launches = 1) {
  return {.device_bytes = bytes, .launches = launches};
}
// The sums of weight gradients: read and written each time but for the first.
LayerWork Sums(double elements, double times, bool first) {
  return Pass(elements * kF32Bytes * (2 * times - (first ? 1 : 0)), 0);
}
LayerWork Logits(const Sizes& s) {
  const LayerWork norm =
      Pass(s.has_own_input() ? 2 * s.tokens * s.hidden * s.e : 0, s.has_own_input() ? s.chunks : 0);
  return norm + Products(s.tokens, s.router(), s.chunks) +
         Pass(s.tokens * s.experts * kF32Bytes, s.chunks);
}
// The shared unit's results times their gates, added to the sums, which are set to zero first; and
// the rows numbered, with four launches.
LayerWork GateShared(const Sizes& s) {
  if (!s.d.shared_gate) return {};
  return Pass(s.tokens * s.hidden * (s.e + 3 * kF32Bytes), 4 * s.chunks + 4);
}
// The unit's output once more, weighed with its gradient, and the results' gradients times the
// gates.
LayerWork GateSharedBackward(const Sizes& s) {
  if (!s.d.shared_gate) return {};
  return Pass(s.tokens * (6 * s.shared + 2 * s.hidden) * s.e, 7 * s.chunks);
}
// A row of `hidden` gathered, and one added to a token's sum.
LayerWork Gather(const Sizes& s) { return Pass(s.rows * 2 * s.hidden * s.e, s.packs); }
LayerWork AddRows(const Sizes& s) {
  return Pass(s.rows * s.hidden * (s.e + 2 * kF32Bytes), s.packs);
}

}  // namespace

LayerWork RouteWork(const WorkShape& shape, bool backward) {
  const Sizes s(shape);
  // The norm, the logits, the sorting with its three launches, and the sum.
  LayerWork work = Pass(2 * s.tokens * s.hidden * s.e, s.chunks) + Logits(s) +
                   Pass(s.tokens * s.chosen * 6 * kF32Bytes, s.chunks + 3);
  // FinishExperts.
  if (!backward && !s.layer.joins()) work += Pass(s.tokens * s.hidden * (kF32Bytes + 2 * s.e));
  if (s.shared == 0 || backward) return work + Pass(s.tokens * s.hidden * kF32Bytes);
  return work + GateShared(s) + Products(s.tokens, s.shared_unit(), 2 * s.chunks) +
         Pass(s.tokens * (3 * s.shared * s.e + s.hidden * (kF32Bytes - s.e)), s.chunks);
}

LayerWork RouterBackwardWork(const WorkShape& shape, bool first) {
  const Sizes s(shape);
  LayerWork work = Logits(s) + 2 * Products(s.tokens, s.router(), s.chunks) +
                   Pass(s.tokens * s.experts * (kF32Bytes + s.e), s.chunks) +
                   Sums(s.router(), s.chunks, first) +
                   // The sum rounded, and the gradient of the norm.
                   Pass(s.tokens * s.hidden * (2 * kF32Bytes + kF32Bytes + 5 * s.e), 3 * s.chunks);
  if (s.has_own_input()) work += Pass(4 * s.tokens * s.hidden * s.e, 2 * s.chunks);
  if (!s.d.router.expert_scales.empty()) {
    work += Pass(2 * s.tokens * s.experts * kF32Bytes, 2 * s.chunks);
  }
  if (s.shared == 0) return work;
  return work + GateSharedBackward(s) + Products(s.tokens, 2 * s.hidden * s.shared, s.chunks) +
         2 * Products(s.tokens, s.shared_unit(), 2 * s.chunks) +
         Pass(s.tokens * (6 * s.shared * s.e + 2 * s.hidden * kF32Bytes), s.chunks) +
         Sums(s.shared_unit(), s.chunks, first);
}

LayerWork RouterWeightGradientWork(const WorkShape& shape) {
  const Sizes s(shape);
  const double matrices = s.router() + s.shared_unit();
  return Products(s.tokens, matrices, (s.shared == 0 ? 1 : 3) * s.chunks) +
         Sums(matrices, s.chunks, /*first=*/false);
}

LayerWork ExpertsForwardWork(const WorkShape& shape) {
  const Sizes s(shape);
  return Gather(s) + Products(s.rows, s.tile_unit(), 2 * s.tile_experts) +
         Pass(s.rows * 3 * s.intermediate * s.e, s.packs) + AddRows(s);
}

LayerWork ExpertsBackwardWork(const WorkShape& shape, bool first) {
  const Sizes s(shape);
  // The input gathered, gate and up computed again, the gradients of both products' inputs and
  // weights; the unit's output, the weighing of rows, and the unit's gradient.
  return 3 * Gather(s) + Products(s.rows, 2 * s.hidden * s.intermediate, s.tile_experts) +
         2 * Products(s.rows, s.tile_unit(), 2 * s.tile_experts) +
         Pass(s.rows * (3 + 3 + 6) * s.intermediate * s.e, 3 * s.packs) + AddRows(s) +
         Sums(s.tile_experts * s.tile_unit(), 1, first);
}

LayerWork ExpertsWeightGradientWork(const WorkShape& shape) {
  const Sizes s(shape);
  return Gather(s) + Products(s.rows, s.tile_unit(), 2 * s.tile_experts) +
         Sums(s.tile_experts * s.tile_unit(), 1, /*first=*/false);
}

LayerWork JoinForwardWork(const WorkShape& shape) {
  const Sizes s(shape);
  const double row = s.tokens * s.hidden * s.e;
  // The experts' sum rounded, four norms of which two add, and perhaps the factor of the result.
  return Products(s.tokens, s.dense_unit(), 2 * s.chunks) +
         Pass(s.tokens * 3 * s.dense * s.e, s.chunks) +
         Pass(s.tokens * s.hidden * kF32Bytes + row, s.chunks) + Pass(10 * row, 4 * s.chunks) +
         Pass(s.layer.output_scale ? 2 * row : 0, s.layer.output_scale ? s.chunks : 0);
}

LayerWork JoinBackwardWork(const WorkShape& shape, bool first) {
  const Sizes s(shape);
  const double row = s.tokens * s.hidden * s.e;
  // Everything again, then the gradients of the dense unit's products and of the four norms, of
  // which one adds; the sum is set to zero.
  return JoinForwardWork(shape) + 2 * Products(s.tokens, s.dense_unit(), 2 * s.chunks) +
         Pass(s.tokens * 6 * s.dense * s.e, s.chunks) + Pass((3 * 3 + 4) * row, 8 * s.chunks) +
         Pass(s.tokens * s.hidden * kF32Bytes) + Sums(s.dense_unit(), s.chunks, first);
}

LayerWork JoinWeightGradientWork(const WorkShape& shape) {
  const Sizes s(shape);
  return Products(s.tokens, s.dense_unit(), 2 * s.chunks) +
         Sums(s.dense_unit(), s.chunks, /*first=*/false);
}

}  // namespace megatrain

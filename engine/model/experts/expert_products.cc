#include "engine/model/experts/expert_products.h"

#include <algorithm>

#include "engine/base/status.h"

namespace megatrain {
namespace {

// The rows of one expert in a pack; `begin` counts in the pack, `index` in the tile.
struct ExpertPart {
  int64_t index = 0, begin = 0, rows = 0;
};
absl::Status ForExperts(const BoundLayer& l, const RoutedTokens& r, const Pack& pack,
                        absl::FunctionRef<absl::Status(const ExpertPart&)> run) {
  for (int64_t i = 0; i < l.tile.experts; ++i) {
    const int64_t e = l.tile.first_expert + i;
    const int64_t begin = std::max<int64_t>(r.offsets[e], pack.first);
    const int64_t end = std::min<int64_t>(r.offsets[e + 1], pack.first + pack.rows);
    if (begin >= end) continue;
    MT_RETURN_IF_ERROR(run({i, begin - pack.first, end - begin}));
  }
  return absl::OkStatus();
}

GluArgs UnitArgs(const BoundLayer& l, const ExpertScratch& s, int64_t rows, int64_t width) {
  const ExpertsDescription& d = l.d.experts;
  GluArgs args;
  args.dtype = l.context.dtype;
  args.activation = d.activation;
  args.limit = static_cast<float>(d.limit);
  args.slope = static_cast<float>(d.slope);
  args.interleaved = d.transposed();
  args.tokens = rows;
  args.width = width;
  args.gate_up = s.gate_up;
  args.out = s.activated;
  return args;
}

}  // namespace

absl::Status Glu(const BoundLayer& l, const ExpertScratch& s, int64_t rows, int64_t width) {
  return l.kernels.Glu(l.stream, UnitArgs(l, s, rows, width));
}

absl::Status GluBackward(const BoundLayer& l, const ExpertScratch& s, int64_t rows, int64_t width) {
  const GluArgs forward = UnitArgs(l, s, rows, width);
  GluBackwardArgs args;
  args.dtype = forward.dtype;
  args.activation = forward.activation;
  args.limit = forward.limit;
  args.slope = forward.slope;
  args.interleaved = forward.interleaved;
  args.tokens = rows;
  args.width = width;
  args.gate_up = args.dgate_up = s.gate_up;
  args.dout = s.dactivated;
  return l.kernels.GluBackward(l.stream, args);
}

absl::Status ForPacks(const BoundLayer& l, const RoutedTokens& r,
                      absl::FunctionRef<absl::Status(const Pack&)> run) {
  const int64_t most = l.context.chunk_tokens;
  Pack pack;
  const auto flush = [&] {
    const Pack full = pack;
    pack = {};
    return full.rows > 0 ? run(full) : absl::OkStatus();
  };
  for (int64_t e = l.tile.first_expert; e < l.tile.first_expert + l.tile.experts; ++e) {
    const int64_t end = r.offsets[e + 1];
    for (int64_t begin = r.offsets[e]; begin < end; begin += most) {
      const int64_t rows = std::min(most, end - begin);
      if (pack.rows + rows > most) MT_RETURN_IF_ERROR(flush());
      if (pack.rows == 0) pack.first = begin;
      pack.rows += rows;
    }
  }
  return flush();
}

ExpertRows RangeOf(const BoundLayer& l, const RoutedTokens& r, const Pack& pack) {
  return {.first = pack.first,
          .rows = pack.rows,
          .tokens = l.batch.tokens,
          .chosen = l.d.experts.chosen,
          .assignments = r.assignments,
          .token_rows = r.token_rows};
}

absl::Status Gather(const BoundLayer& l, const RoutedTokens& r, const Pack& pack, const void* x,
                    const float* weights, void* out) {
  GatherRowsArgs args;
  args.dtype = l.context.dtype;
  args.width = l.hidden;
  args.range = RangeOf(l, r, pack);
  args.x = x;
  args.weights = weights;
  args.out = out;
  return l.kernels.GatherRows(l.stream, args);
}

absl::Status AddRows(const BoundLayer& l, const RoutedTokens& r, const Pack& pack, const void* x,
                     const float* weights) {
  AddRowsArgs args;
  args.dtype = l.context.dtype;
  args.width = l.hidden;
  args.range = RangeOf(l, r, pack);
  args.x = x;
  args.weights = weights;
  args.sum = r.sum;
  return l.kernels.AddRows(l.stream, args);
}

ExpertMatrix GateUp(const BoundLayer& l) {
  return {l.o.expert_gate_up, l.o.expert_gate_up_bias, l.hidden, 2 * l.d.experts.intermediate,
          l.d.experts.transposed()};
}
ExpertMatrix Down(const BoundLayer& l) {
  return {l.o.expert_down, l.o.expert_down_bias, l.d.experts.intermediate, l.hidden,
          l.d.experts.transposed()};
}

absl::Status Products(const BoundLayer& l, const RoutedTokens& r, const Pack& pack,
                      const ExpertMatrix& m, const void* x, void* y) {
  return ForExperts(l, r, pack, [&](const ExpertPart& part) {
    return l.Product(l.Offset(x, part.begin * m.in), m.weight_of(part.index),
                     {.rows = std::max(part.rows, l.context.whole_rows),
                      .in = m.in,
                      .out = m.out,
                      .transposed = m.transposed},
                     l.Offset(y, part.begin * m.out), {.bias = m.bias_of(part.index)});
  });
}

absl::Status InputGradients(const BoundLayer& l, const RoutedTokens& r, const Pack& pack,
                            const ExpertMatrix& m, const void* dy, void* dx) {
  return ForExperts(l, r, pack, [&](const ExpertPart& part) {
    return l.ProductGradient(
        l.Offset(dy, part.begin * m.out), m.weight_of(part.index),
        {.rows = part.rows, .in = m.in, .out = m.out, .transposed = m.transposed},
        l.Offset(dx, part.begin * m.in));
  });
}

absl::Status WeightGradients(const BoundLayer& l, const RoutedTokens& r, const Pack& pack,
                             const ExpertMatrix& m, const void* x, const void* dy, float* gradient,
                             bool first) {
  if (gradient == nullptr) return absl::OkStatus();
  return ForExperts(l, r, pack, [&](const ExpertPart& part) {
    const bool begins = pack.first + part.begin == r.offsets[l.tile.first_expert + part.index];
    const TileGradient sums = {gradient, !(first && begins)};
    const Chunk rows = {part.begin, part.rows};
    const void* const x_rows = l.Rows(x, rows, m.in);
    const void* const dy_rows = l.Rows(dy, rows, m.out);
    if (m.bias >= 0) {
      MT_RETURN_IF_ERROR(l.BiasGradient(rows, dy_rows, m.out, m.bias_of(part.index), sums));
    }
    // The gradient of a transposed matrix is x^T dy.
    return m.transposed ? l.LinearWeightGradient(rows, dy_rows, m.out, x_rows, m.in,
                                                 m.weight_of(part.index), sums)
                        : l.LinearWeightGradient(rows, x_rows, m.in, dy_rows, m.out,
                                                 m.weight_of(part.index), sums);
  });
}

absl::Status ZeroGradientsWithoutRows(const BoundLayer& l, const RoutedTokens& r,
                                      const ExpertMatrix& m, float* gradient) {
  const auto zero = [&](int64_t begin, int64_t elements) {
    for (const ElementRange& part : TrainedRanges(l.tile, {begin, begin + elements})) {
      MT_RETURN_IF_ERROR(l.kernels.Zero(l.stream, gradient + part.begin,
                                        (part.end - part.begin) * int64_t{sizeof(float)}));
    }
    return absl::OkStatus();
  };
  for (int64_t i = 0; i < l.tile.experts; ++i) {
    const int64_t e = l.tile.first_expert + i;
    if (r.offsets[e] < r.offsets[e + 1]) continue;
    MT_RETURN_IF_ERROR(zero(m.weight_of(i), m.in * m.out));
    if (m.bias >= 0) MT_RETURN_IF_ERROR(zero(m.bias_of(i), m.out));
  }
  return absl::OkStatus();
}

}  // namespace megatrain

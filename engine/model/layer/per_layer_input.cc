#include "engine/model/layer/per_layer_input.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/device/device.h"
#include "engine/model/layer/residual_branch.h"

namespace megatrain {
namespace {

int64_t Width(const BoundLayer& l) { return l.d.per_layer_input.width; }

// The chunk's rows of a tensor that holds all tokens if products are kept.
void* KeptRows(const BoundLayer& l, void* tensor, const Chunk& chunk, int64_t width) {
  return l.RowsIfKept(tensor, l.keeps_products, chunk, width);
}
void* GateUp(const BoundLayer& l, const Chunk& chunk) {
  return KeptRows(l, l.a.per_layer.gate_up, chunk, 2 * Width(l));
}
void* ModelProjection(const BoundLayer& l, const Chunk& chunk) {
  return KeptRows(l, l.a.per_layer.projected, chunk, Width(l));
}
const void* Embedded(const BoundLayer& l, const Chunk& chunk) {
  return l.Rows(l.batch.shared.embedding, chunk, l.hidden);
}
double ModelProjectionScale(const BoundLayer& l) {
  return 1.0 / std::sqrt(static_cast<double>(l.hidden));
}

ResidualBranch Branch(const BoundLayer& l) {
  return {.weight = l.o.per_layer_out,
          .in = Width(l),
          .scale = std::sqrt(0.5),
          .post_norm = l.o.per_layer_norm,
          .product = l.a.per_layer.branch,
          .rstd = l.a.per_layer.post_rstd};
}

EmbeddingArgs Lookup(const BoundLayer& l, const Chunk& chunk, void* out) {
  EmbeddingArgs args;
  args.dtype = l.context.dtype;
  args.tokens = chunk.tokens;
  args.hidden = Width(l);
  args.vocabulary = l.d.per_layer_input.vocabulary;
  args.ids = l.batch.ids + chunk.begin;
  args.table = l.Offset(l.weights, l.o.per_layer_table);
  args.out = out;
  args.scale = EmbeddingScale(l.context, std::sqrt(static_cast<double>(Width(l))));
  return args;
}

// The arguments of the norm, whose weight lies in SharedRows.
RmsNormArgs InputNorm(const BoundLayer& l, const Chunk& chunk, const void* x, void* y) {
  RmsNormArgs args = l.NormArgs(chunk, x, -1, y, l.a.per_layer.rstd + chunk.begin);
  args.width = args.x_stride = args.y_stride = Width(l);
  args.weight = l.batch.shared.per_layer_norm;
  return args;
}

// Copies rows [tokens, width] between two places whose rows are some stride apart.
absl::Status Copy(const BoundLayer& l, const Chunk& chunk, const void* from, int64_t from_stride,
                  void* to, int64_t to_stride) {
  AddArgs args;
  args.rows = chunk.tokens;
  args.width = Width(l);
  args.a = {l.context.dtype, from, from_stride};
  args.y_dtype = l.context.dtype;
  args.y = to;
  args.y_stride = to_stride;
  return l.kernels.Add(l.stream, args);
}

// Computes the chunk's rows of gate and p from the stream `x`.
absl::Status ComputeGateUp(const BoundLayer& l, const Chunk& chunk, const void* x) {
  const int64_t width = Width(l);
  void* const gate_up = GateUp(l, chunk);
  void* const row = l.a.per_layer.activated;
  MT_RETURN_IF_ERROR(l.Linear(chunk, x, l.hidden, l.o.per_layer_gate, width, row));
  MT_RETURN_IF_ERROR(Copy(l, chunk, row, width, gate_up, 2 * width));
  void* const projected = ModelProjection(l, chunk);
  MT_RETURN_IF_ERROR(l.Linear(chunk, Embedded(l, chunk), l.hidden, l.o.per_layer_model_projection,
                              width, projected, /*bias=*/-1, /*addend=*/nullptr,
                              ModelProjectionScale(l)));
  MT_RETURN_IF_ERROR(l.kernels.Embedding(l.stream, Lookup(l, chunk, row)));
  RmsNormArgs norm = InputNorm(l, chunk, projected, row);
  norm.addend = row;
  MT_RETURN_IF_ERROR(l.kernels.RmsNorm(l.stream, norm));
  return Copy(l, chunk, row, width, l.Offset(gate_up, width), 2 * width);
}

absl::Status Activate(const BoundLayer& l, const Chunk& chunk) {
  GluArgs args;
  args.dtype = l.context.dtype;
  args.activation = l.d.per_layer_input.activation;
  args.tokens = chunk.tokens;
  args.width = Width(l);
  args.gate_up = GateUp(l, chunk);
  args.out = l.a.per_layer.activated;
  return l.kernels.Glu(l.stream, args);
}

// Computes the gradient by p's parts from that by p, `dp` [tokens, width].
absl::Status InputGradient(const BoundLayer& l, const Chunk& chunk, const void* dp,
                           const TileGradient& gradient) {
  const SharedRows& shared = l.batch.shared;
  const int64_t width = Width(l);
  // The last layer is the first one of the backward pass.
  const bool first_layer = l.context.layer == l.model.layer_count() - 1;
  void* const dprojected = l.a.per_layer.activated;
  RmsNormBackwardArgs norm =
      l.NormBackwardArgs(chunk, ModelProjection(l, chunk), -1, l.a.per_layer.rstd + chunk.begin, dp,
                         dprojected, gradient);
  norm.width = norm.x_stride = norm.dy_stride = norm.dx_stride = width;
  norm.weight = shared.per_layer_norm;
  norm.accumulate = false;
  norm.dweight = shared.per_layer_norm_gradient;
  norm.add_dweight = !first_layer || chunk.begin > 0;
  MT_RETURN_IF_ERROR(l.kernels.RmsNormBackward(l.stream, norm));
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, Embedded(l, chunk), l.hidden, dprojected, width,
                                            l.o.per_layer_model_projection, gradient,
                                            ModelProjectionScale(l)));
  if (!gradient.input) return absl::OkStatus();
  float* const dembedding = shared.embedding_gradient + chunk.begin * l.hidden;
  return l.ProductGradient(dprojected, l.o.per_layer_model_projection,
                           {.rows = chunk.tokens, .in = l.hidden, .out = width}, dembedding,
                           {.addend = first_layer ? nullptr : dembedding,
                            .scale = ModelProjectionScale(l),
                            .out_dtype = DType::kF32});
}

}  // namespace

void* PerLayerStream(const BoundLayer& l, const Chunk& chunk) {
  return KeptRows(l, l.a.per_layer.stream, chunk, l.hidden);
}

absl::Status AddPerLayerInput(const BoundLayer& l, const Chunk& chunk, const void* x, void* y) {
  MT_RETURN_IF_ERROR(ComputeGateUp(l, chunk, x));
  MT_RETURN_IF_ERROR(Activate(l, chunk));
  return AddBranch(l, chunk, Branch(l), l.a.per_layer.activated, x, y);
}

absl::Status RecomputePerLayerInput(const BoundLayer& l, const Chunk& chunk) {
  MT_RETURN_IF_ERROR(ComputeGateUp(l, chunk, PerLayerStream(l, chunk)));
  MT_RETURN_IF_ERROR(Activate(l, chunk));
  return RecomputeBranch(l, chunk, Branch(l), l.a.per_layer.activated);
}

absl::Status PerLayerInputBackward(const BoundLayer& l, const Chunk& chunk, void* dh,
                                   const LayerBackwardScratch& scratch,
                                   const TileGradient& gradient) {
  const int64_t width = Width(l);
  const ResidualBranch branch = Branch(l);
  void* const row = l.a.per_layer.activated;
  void* const gate_up = GateUp(l, chunk);
  MT_ASSIGN_OR_RETURN(const void* const dproduct, BranchGradient(l, chunk, branch, dh, gradient));
  MT_RETURN_IF_ERROR(BranchInputGradient(l, chunk, branch, dproduct, row));
  GluBackwardArgs unit;
  unit.dtype = l.context.dtype;
  unit.activation = l.d.per_layer_input.activation;
  unit.tokens = chunk.tokens;
  unit.width = width;
  unit.gate_up = unit.dgate_up = gate_up;
  unit.dout = row;  // then the unit's output
  MT_RETURN_IF_ERROR(l.kernels.GluBackward(l.stream, unit));
  MT_RETURN_IF_ERROR(BranchWeightGradient(l, chunk, branch, row, dproduct, gradient));
  MT_RETURN_IF_ERROR(Copy(l, chunk, gate_up, 2 * width, row, width));
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, PerLayerStream(l, chunk), l.hidden, row, width,
                                            l.o.per_layer_gate, gradient));
  MT_RETURN_IF_ERROR(l.LinearInputGradient(chunk, row, width, l.o.per_layer_gate, l.hidden, dh,
                                           /*scale=*/1.0, /*addend=*/dh));
  void* const dp = l.Rows(scratch.dper_layer, chunk, width);
  MT_RETURN_IF_ERROR(Copy(l, chunk, l.Offset(gate_up, width), 2 * width, dp, width));
  return InputGradient(l, chunk, dp, gradient);
}

absl::Status PerLayerTableBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                   const TileGradient& gradient) {
  if (!IsTrained(l.tile, l.o.per_layer_table)) return absl::OkStatus();
  EmbeddingBackwardArgs args;
  args.dtype = l.context.dtype;
  args.tokens = l.batch.tokens;
  args.hidden = Width(l);
  args.vocabulary = l.d.per_layer_input.vocabulary;
  args.ids = l.batch.ids;
  args.sorted_positions = l.batch.sorted_positions;
  args.dout = scratch.dper_layer;
  args.dtable = gradient.At(l.o.per_layer_table);
  args.add = gradient.add;
  args.scale = EmbeddingScale(l.context, std::sqrt(static_cast<double>(Width(l))));
  args.padding_id = l.model.padding_id;
  return l.kernels.EmbeddingBackward(l.stream, args);
}

absl::Status AddEmbeddingGradient(const BoundLayer& l, void* dh) {
  AddArgs args;
  args.rows = l.batch.tokens;
  args.width = l.hidden;
  args.a = {l.context.dtype, dh, l.hidden};
  args.b = {DType::kF32, l.batch.shared.embedding_gradient, l.hidden};
  args.y_dtype = l.context.dtype;
  args.y = dh;
  args.y_stride = l.hidden;
  return l.kernels.Add(l.stream, args);
}

}  // namespace megatrain

// Gathers the rows and computes the products of the experts of one tile (expert_half.h). The
// experts' tile is bound in `l`. Each function that returns a status queues work on the stream of
// `l` and returns the errors of its kernels. REQUIRES, wherever `r` is taken: r.offsets is set.
#ifndef MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_PRODUCTS_H_
#define MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_PRODUCTS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/model/experts/expert_memory.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

// A BoundLayer for the half with experts, which uses no LayerActivations. The arguments must
// outlive it.
struct BoundExperts {
  BoundExperts(const LayerContext& context, const void* weights, const MicroBatchView& batch)
      : layer(context, weights, batch, none) {}
  LayerActivations none;
  BoundLayer layer;
};

// Computes s.activated[rows, width] from s.gate_up[rows, 2, width] by the gated unit, of experts or
// of the shared expert. If the experts' matrices are transposed, s.gate_up is [rows, width, 2].
// `width` is the unit's intermediate width.
absl::Status Glu(const BoundLayer& l, const ExpertScratch& s, int64_t rows, int64_t width);
// Overwrites s.gate_up by its gradient. s.dactivated has the gradient by the unit's output on
// entry, and the output on return.
absl::Status GluBackward(const BoundLayer& l, const ExpertScratch& s, int64_t rows, int64_t width);

// Rows [first, first + rows) of the sorted assignments (expert_args.h), at most
// LayerContext::chunk_tokens.
struct Pack {
  int64_t first = 0, rows = 0;
};
// Calls `run` for packs that cover the rows of the tile's experts in order. Returns the first
// error. The rows of an expert are cut only if they are more than a pack holds, at multiples of
// that number from the expert's first row. An expert's products therefore do not depend on the
// tile's other experts.
absl::Status ForPacks(const BoundLayer& l, const RoutedTokens& r,
                      absl::FunctionRef<absl::Status(const Pack&)> run);

// Returns the pack's rows as kernels take them.
ExpertRows RangeOf(const BoundLayer& l, const RoutedTokens& r, const Pack& pack);
// Copies the rows of x [tokens, hidden] that the pack's rows name to out [pack's rows, hidden],
// each times its weight in `weights` (as RoutedTokens::weights); null: 1.
absl::Status Gather(const BoundLayer& l, const RoutedTokens& r, const Pack& pack, const void* x,
                    const float* weights, void* out);
// Adds the rows of x [pack's rows, hidden], each times its weight in `weights` (null: 1), to their
// tokens' rows of r.sum.
absl::Status AddRows(const BoundLayer& l, const RoutedTokens& r, const Pack& pack, const void* x,
                     const float* weights);

// One of the two matrices of the tile's experts, [out, in] for each expert, or [in, out] if
// transposed, and its bias. `index` counts experts from the tile's first.
struct ExpertMatrix {
  int64_t weight = 0;  // the first expert's offset in the tile
  int64_t bias = -1;   // the offset of the first expert's bias; -1: there is none
  int64_t in = 0, out = 0;
  bool transposed = false;

  // Return the offset of one expert's weight or bias.
  int64_t weight_of(int64_t index) const { return weight + index * in * out; }
  int64_t bias_of(int64_t index) const { return bias < 0 ? -1 : bias + index * out; }
};
// Return the matrix of gate and up, and that of the down projection.
ExpertMatrix GateUp(const BoundLayer& l);
ExpertMatrix Down(const BoundLayer& l);

// Computes y[pack's rows, out] = x[pack's rows, in] W^T (+ bias), for the rows of each expert with
// its own W. With LayerContext::whole_rows a product may have more rows than its expert. The
// further rows are those of later experts, whose own products then overwrite the results, or lie
// after the pack.
absl::Status Products(const BoundLayer& l, const RoutedTokens& r, const Pack& pack,
                      const ExpertMatrix& m, const void* x, void* y);
// Computes dx[pack's rows, in] = dy[pack's rows, out] W, for the rows of each expert with its own
// W.
absl::Status InputGradients(const BoundLayer& l, const RoutedTokens& r, const Pack& pack,
                            const ExpertMatrix& m, const void* dy, void* dx);
// Adds dy^T x to dW and the sum of dy's rows to dbias, for each expert, in `gradient` (FP32, in the
// tile's layout; null: does nothing). With `first` the gradients of an expert's first pack replace
// the content. Frozen tensors are not written.
absl::Status WeightGradients(const BoundLayer& l, const RoutedTokens& r, const Pack& pack,
                             const ExpertMatrix& m, const void* x, const void* dy, float* gradient,
                             bool first);
// Sets the gradients of experts without rows to 0, except for those of frozen tensors. REQUIRES:
// `gradient` is not null.
absl::Status ZeroGradientsWithoutRows(const BoundLayer& l, const RoutedTokens& r,
                                      const ExpertMatrix& m, float* gradient);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_PRODUCTS_H_

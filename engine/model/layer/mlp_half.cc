#include "engine/model/layer/mlp_half.h"

#include "engine/base/status.h"
#include "engine/device/device.h"
#include "engine/model/layer/residual_branch.h"

namespace megatrain {
namespace {

int64_t Intermediate(const BoundLayer& l) { return l.d.feed_forward.intermediate; }

void* GateUpRows(const BoundLayer& l, const Chunk& chunk) {
  return l.RowsIfKept(l.a.gate_up, l.keeps_products, chunk, 2 * Intermediate(l));
}

bool HasNorm(const BoundLayer& l) { return l.o.feed_forward_norm >= 0; }
// The rows that gate and up are projected from.
void* Input(const BoundLayer& l, const Chunk& chunk) {
  if (!HasNorm(l)) return l.Middle(chunk);
  return l.RowsIfKept(l.a.feed_forward_normed, l.keeps_all, chunk, l.hidden);
}

absl::Status Norm(const BoundLayer& l, const Chunk& chunk) {
  if (!HasNorm(l)) return absl::OkStatus();
  return l.kernels.RmsNorm(
      l.stream, l.NormArgs(chunk, l.Middle(chunk), l.o.feed_forward_norm, Input(l, chunk),
                           l.a.feed_forward_rstd + chunk.begin));
}

absl::Status GateUp(const BoundLayer& l, const Chunk& chunk) {
  return l.Linear(chunk, Input(l, chunk), l.hidden, l.o.gate_up, 2 * Intermediate(l),
                  GateUpRows(l, chunk));
}

absl::Status Glu(const BoundLayer& l, const Chunk& chunk) {
  GluArgs args;
  args.dtype = l.context.dtype;
  args.activation = l.d.feed_forward.activation;
  args.tokens = chunk.tokens;
  args.width = Intermediate(l);
  args.gate_up = GateUpRows(l, chunk);
  args.out = l.a.activated;
  return l.kernels.Glu(l.stream, args);
}

absl::Status GluBackward(const BoundLayer& l, const Chunk& chunk) {
  GluBackwardArgs args;
  args.dtype = l.context.dtype;
  args.activation = l.d.feed_forward.activation;
  args.tokens = chunk.tokens;
  args.width = Intermediate(l);
  args.gate_up = GateUpRows(l, chunk);
  args.dout = l.a.activated;
  args.dgate_up = GateUpRows(l, chunk);
  return l.kernels.GluBackward(l.stream, args);
}

}  // namespace

absl::Status MlpForward(const BoundLayer& l, const Chunk& chunk, void* y) {
  MT_RETURN_IF_ERROR(Norm(l, chunk));
  MT_RETURN_IF_ERROR(GateUp(l, chunk));
  MT_RETURN_IF_ERROR(Glu(l, chunk));
  return AddBranch(l, chunk, FeedForwardBranch(l), l.a.activated, l.Middle(chunk), y);
}

absl::Status RecomputeMlp(const BoundLayer& l, const Chunk& chunk, void* y) {
  if (!l.keeps_all) MT_RETURN_IF_ERROR(Norm(l, chunk));
  if (l.keeps_products) return absl::OkStatus();
  MT_RETURN_IF_ERROR(GateUp(l, chunk));
  const ResidualBranch branch = FeedForwardBranch(l);
  if (!branch.has_post_norm() && y == nullptr) return absl::OkStatus();
  MT_RETURN_IF_ERROR(Glu(l, chunk));
  return y != nullptr ? AddBranch(l, chunk, branch, l.a.activated, l.Middle(chunk), y)
                      : RecomputeBranch(l, chunk, branch, l.a.activated);
}

absl::Status MlpBackward(const BoundLayer& l, const Chunk& chunk, void* dh,
                         const TileGradient& gradient) {
  const int64_t intermediate = Intermediate(l);
  void* const activated = l.a.activated;
  void* const gate_up = GateUpRows(l, chunk);
  const ResidualBranch branch = FeedForwardBranch(l);
  MT_ASSIGN_OR_RETURN(const void* const dproduct, BranchGradient(l, chunk, branch, dh, gradient));
  MT_RETURN_IF_ERROR(BranchInputGradient(l, chunk, branch, dproduct, activated));
  MT_RETURN_IF_ERROR(GluBackward(l, chunk));
  MT_RETURN_IF_ERROR(BranchWeightGradient(l, chunk, branch, activated, dproduct, gradient));
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, Input(l, chunk), l.hidden, gate_up,
                                            2 * intermediate, l.o.gate_up, gradient));
  if (!HasNorm(l)) {
    return l.LinearInputGradient(chunk, gate_up, 2 * intermediate, l.o.gate_up, l.hidden, dh,
                                 /*scale=*/1.0, /*addend=*/dh);
  }
  void* const normed = Input(l, chunk);
  MT_RETURN_IF_ERROR(
      l.LinearInputGradient(chunk, gate_up, 2 * intermediate, l.o.gate_up, l.hidden, normed));
  return l.kernels.RmsNormBackward(
      l.stream, l.NormBackwardArgs(chunk, l.Middle(chunk), l.o.feed_forward_norm,
                                   l.a.feed_forward_rstd + chunk.begin, normed, dh, gradient));
}

}  // namespace megatrain

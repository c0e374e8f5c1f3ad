#include "engine/model/mlp_half.h"

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

void* GateUpRows(const BoundLayer& l, const Chunk& chunk) {
  return l.RowsIfKept(l.a.gate_up, l.keeps_products, chunk, 2 * l.c.intermediate);
}

void* Normed(const BoundLayer& l, const Chunk& chunk) {
  return l.RowsIfKept(l.a.post_normed, l.keeps_all, chunk, l.c.hidden);
}

absl::Status Norm(const BoundLayer& l, const Chunk& chunk) {
  return l.kernels.RmsNorm(l.stream, l.NormArgs(chunk, l.Middle(chunk), l.o.post_norm,
                                                Normed(l, chunk), l.a.post_rstd + chunk.begin));
}

absl::Status GateUp(const BoundLayer& l, const Chunk& chunk) {
  return l.Linear(chunk, Normed(l, chunk), l.c.hidden, l.o.gate_up, 2 * l.c.intermediate,
                  GateUpRows(l, chunk));
}

absl::Status Glu(const BoundLayer& l, const Chunk& chunk) {
  GluArgs args;
  args.dtype = l.context.dtype;
  args.tokens = chunk.tokens;
  args.width = l.c.intermediate;
  args.gate_up = GateUpRows(l, chunk);
  args.out = l.a.activated;
  return l.kernels.Glu(l.stream, args);
}

absl::Status GluBackward(const BoundLayer& l, const Chunk& chunk) {
  GluBackwardArgs args;
  args.dtype = l.context.dtype;
  args.tokens = chunk.tokens;
  args.width = l.c.intermediate;
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
  return l.Linear(chunk, l.a.activated, l.c.intermediate, l.o.down, l.c.hidden,
                  l.Rows(y, chunk, l.c.hidden), /*bias=*/-1, l.Middle(chunk));
}

absl::Status RecomputeMlp(const BoundLayer& l, const Chunk& chunk) {
  if (!l.keeps_all) MT_RETURN_IF_ERROR(Norm(l, chunk));
  return l.keeps_products ? absl::OkStatus() : GateUp(l, chunk);
}

absl::Status MlpBackward(const BoundLayer& l, const Chunk& chunk, void* dh,
                         const TileGradient& gradient) {
  const int64_t hidden = l.c.hidden, intermediate = l.c.intermediate;
  void* const activated = l.a.activated;
  void* const gate_up = GateUpRows(l, chunk);
  void* const normed = Normed(l, chunk);
  MT_RETURN_IF_ERROR(l.LinearInputGradient(chunk, dh, hidden, l.o.down, intermediate, activated));
  MT_RETURN_IF_ERROR(GluBackward(l, chunk));
  MT_RETURN_IF_ERROR(
      l.LinearWeightGradient(chunk, activated, intermediate, dh, hidden, l.o.down, gradient));
  MT_RETURN_IF_ERROR(l.LinearWeightGradient(chunk, normed, hidden, gate_up, 2 * intermediate,
                                            l.o.gate_up, gradient));
  MT_RETURN_IF_ERROR(
      l.LinearInputGradient(chunk, gate_up, 2 * intermediate, l.o.gate_up, hidden, normed));
  return l.kernels.RmsNormBackward(
      l.stream, l.NormBackwardArgs(chunk, l.Middle(chunk), l.o.post_norm,
                                   l.a.post_rstd + chunk.begin, normed, dh, gradient));
}

}  // namespace megatrain

#include "engine/model/layer/delta_net.h"

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

const DeltaNetDescription& Description(const BoundLayer& l) { return l.d.delta_net; }

// The columns of a.projected and of its gradient, whose rows are l.projected_width apart. Q, K and
// V come first, in the order of the convolution's channels.
int64_t Gates(const DeltaNetDescription& d) { return d.channels(); }
int64_t Betas(const DeltaNetDescription& d) { return Gates(d) + d.values_width(); }
int64_t Decays(const DeltaNetDescription& d) { return Betas(d) + d.value_heads; }

DeltaDocuments Documents(const BoundLayer& l) {
  DeltaDocuments documents;
  documents.tokens = l.batch.tokens;
  documents.documents = l.batch.documents;
  documents.starts = l.batch.document_starts;
  documents.bounds = l.batch.document_bounds;
  if (l.context.cache.data != nullptr) documents.state_rows = l.batch.state_rows;
  return documents;
}

// The states of generation: the convolution's, T [sequences, kernel - 1, channels], then the delta
// rule's, FP32 [sequences, value_heads, key_dim, value_dim].
struct States {
  void* conv = nullptr;
  float* delta = nullptr;
};
int64_t PlaceStates(const DeltaNetDescription& d, DType dtype, int64_t sequences, void* data,
                    States& states) {
  TensorCursor cursor{static_cast<char*>(data)};
  cursor.Take(&states.conv, sequences * (d.kernel - 1) * d.channels() * DTypeBytes(dtype));
  cursor.Take(&states.delta,
              sequences * d.value_heads * d.key_dim * d.value_dim * int64_t{sizeof(float)});
  return cursor.offset;
}
// Those of the layer's cache; null without one.
States CachedStates(const BoundLayer& l) {
  States states;
  const LayerCache& cache = l.context.cache;
  PlaceStates(Description(l), l.context.dtype, cache.sequences, cache.data, states);
  return states;
}

CausalConvArgs Conv(const BoundLayer& l) {
  CausalConvArgs args;
  args.dtype = l.context.dtype;
  args.documents = Documents(l);
  args.channels = Description(l).channels();
  args.kernel = Description(l).kernel;
  args.x = l.a.projected;
  args.x_stride = l.projected_width;
  args.weight = l.Offset(l.weights, l.o.conv);
  args.y = l.a.delta.convolved;
  args.y_stride = args.channels;
  args.final_states = CachedStates(l).conv;
  if (l.context.cache.attend) args.initial_states = args.final_states;
  return args;
}

GatedDeltaArgs Delta(const BoundLayer& l) {
  const DeltaNetDescription& d = Description(l);
  GatedDeltaArgs args;
  args.dtype = l.context.dtype;
  args.documents = Documents(l);
  args.key_heads = d.key_heads;
  args.value_heads = d.value_heads;
  args.key_dim = d.key_dim;
  args.value_dim = d.value_dim;
  args.q = l.a.delta.convolved;
  args.k = l.Offset(l.a.delta.convolved, d.keys_width());
  args.v = l.Offset(l.a.delta.convolved, 2 * d.keys_width());
  args.q_stride = args.k_stride = args.v_stride = d.channels();
  args.b = l.Offset(l.a.projected, Betas(d));
  args.a = l.Offset(l.a.projected, Decays(d));
  args.b_stride = args.a_stride = l.projected_width;
  args.a_log = l.Offset(l.weights, l.o.a_log);
  args.dt_bias = l.Offset(l.weights, l.o.dt_bias);
  args.out = l.a.delta.out;
  args.final_states = CachedStates(l).delta;
  if (l.context.cache.attend) args.initial_states = args.final_states;
  return args;
}

GatedNormArgs Norm(const BoundLayer& l) {
  const DeltaNetDescription& d = Description(l);
  GatedNormArgs args;
  args.dtype = l.context.dtype;
  args.tokens = l.batch.tokens;
  args.heads = d.value_heads;
  args.head_dim = d.value_dim;
  args.epsilon = static_cast<float>(l.model.norm_epsilon);
  args.x = l.a.delta.out;
  args.weight = l.Offset(l.weights, l.o.gated_norm);
  args.gate = l.Offset(l.a.projected, Gates(d));
  args.gate_stride = l.projected_width;
  args.out = l.a.mixed;
  return args;
}

// The gradient's place of a tensor of the tile; null if it is frozen.
float* GradientOf(const BoundLayer& l, int64_t offset, const TileGradient& gradient) {
  return IsTrained(l.tile, offset) ? gradient.At(offset) : nullptr;
}

absl::Status NormBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                          const TileGradient& gradient) {
  GatedNormBackwardArgs args;
  args.forward = Norm(l);
  args.dout = scratch.dmixed;
  args.dx = l.a.delta.out;
  args.dgate = l.Offset(scratch.dprojected, Gates(Description(l)));
  args.dgate_stride = l.projected_width;
  args.dweight = GradientOf(l, l.o.gated_norm, gradient);
  args.add_dweight = gradient.add;
  return l.kernels.GatedNormBackward(l.stream, args);
}

// The gradient by the convolution's result, T [tokens, channels], lies before the kernel's own
// workspace.
int64_t ConvolvedBytes(const DeltaNetDescription& d, DType dtype, int64_t tokens) {
  TensorCursor cursor;
  void* none = nullptr;
  cursor.Take(&none, tokens * d.channels() * DTypeBytes(dtype));
  return cursor.offset;
}

// REQUIRES: NormBackward, which leaves the gradient by the delta rule's result in its place.
absl::Status DeltaBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                           const TileGradient& gradient) {
  const DeltaNetDescription& d = Description(l);
  GatedDeltaBackwardArgs args;
  args.forward = Delta(l);
  args.dout = l.a.delta.out;
  args.dq = scratch.workspace;
  args.dk = l.Offset(scratch.workspace, d.keys_width());
  args.dv = l.Offset(scratch.workspace, 2 * d.keys_width());
  args.dq_stride = args.dk_stride = args.dv_stride = d.channels();
  args.db = l.Offset(scratch.dprojected, Betas(d));
  args.da = l.Offset(scratch.dprojected, Decays(d));
  args.db_stride = args.da_stride = l.projected_width;
  args.da_log = GradientOf(l, l.o.a_log, gradient);
  args.ddt_bias = GradientOf(l, l.o.dt_bias, gradient);
  args.add_parameters = gradient.add;
  const int64_t convolved = ConvolvedBytes(d, l.context.dtype, l.batch.tokens);
  args.workspace = static_cast<char*>(scratch.workspace) + convolved;
  args.workspace_bytes = scratch.workspace_bytes - convolved;
  return l.kernels.GatedDeltaBackward(l.stream, args);
}

absl::Status ConvBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                          const TileGradient& gradient) {
  CausalConvBackwardArgs args;
  args.forward = Conv(l);
  args.dy = scratch.workspace;
  args.dy_stride = Description(l).channels();
  args.dx = scratch.dprojected;
  args.dx_stride = l.projected_width;
  args.dweight = GradientOf(l, l.o.conv, gradient);
  args.add_dweight = gradient.add;
  return l.kernels.CausalConvBackward(l.stream, args);
}

}  // namespace

absl::Status DeltaNet::Prepare(const BoundLayer&, const Chunk&) const { return absl::OkStatus(); }

absl::Status DeltaNet::Mix(const BoundLayer& l) const {
  MT_RETURN_IF_ERROR(l.kernels.CausalConv(l.stream, Conv(l)));
  MT_RETURN_IF_ERROR(l.kernels.GatedDelta(l.stream, Delta(l)));
  return l.kernels.GatedNorm(l.stream, Norm(l));
}

absl::Status DeltaNet::Recompute(const BoundLayer& l) const {
  MT_RETURN_IF_ERROR(l.kernels.CausalConv(l.stream, Conv(l)));
  return l.kernels.GatedNorm(l.stream, Norm(l));
}

bool DeltaNet::Trains(const BoundLayer& l) const {
  return IsTrained(l.tile, l.o.conv) || IsTrained(l.tile, l.o.a_log) ||
         IsTrained(l.tile, l.o.dt_bias) || IsTrained(l.tile, l.o.gated_norm);
}

absl::Status DeltaNet::MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                   const TileGradient& gradient) const {
  MT_RETURN_IF_ERROR(NormBackward(l, scratch, gradient));
  MT_RETURN_IF_ERROR(DeltaBackward(l, scratch, gradient));
  return ConvBackward(l, scratch, gradient);
}

absl::Status DeltaNet::PrepareBackward(const BoundLayer&, const Chunk&, const LayerBackwardScratch&,
                                       const TileGradient&) const {
  return absl::OkStatus();
}

int64_t DeltaNet::WorkspaceBytes(const LayerDescription& layer, DType dtype, int64_t tokens,
                                 int64_t, const KernelSizes& sizes) const {
  const DeltaNetDescription& d = layer.delta_net;
  return ConvolvedBytes(d, dtype, tokens) +
         sizes.GatedDeltaBackwardWorkspaceBytes({.tokens = tokens,
                                                 .key_heads = d.key_heads,
                                                 .value_heads = d.value_heads,
                                                 .key_dim = d.key_dim,
                                                 .value_dim = d.value_dim});
}

int64_t DeltaNet::CacheBytes(const LayerDescription& layer, DType dtype,
                             const CacheSize& size) const {
  States none;
  return PlaceStates(layer.delta_net, dtype, size.sequences, nullptr, none);
}

void DeltaNet::Announce(const BoundLayer&, const LayerBackwardScratch&) const {}

}  // namespace megatrain

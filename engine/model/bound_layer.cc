#include "engine/model/bound_layer.h"

#include <algorithm>

#include "engine/base/status.h"

namespace megatrain {
namespace {

MatMulArgs Product(DType dtype, int64_t m, int64_t n, int64_t k, double scale) {
  MatMulArgs args;
  args.alpha = static_cast<float>(scale);
  args.m = m;
  args.n = n;
  args.k = k;
  args.dtype = args.out_dtype = dtype;
  return args;
}

}  // namespace

BoundLayer::BoundLayer(const LayerContext& context, const void* weights,
                       const MicroBatchView& batch, const LayerActivations& activations)
    : context(context),
      model(context.layout->model),
      d(model.layers[static_cast<size_t>(context.layer)]),
      tile(context.layout->tiles[1 + context.layer]),
      o(tile.offsets),
      kernels(*context.kernels),
      stream(*context.stream),
      weights(static_cast<const char*>(weights)),
      batch(batch),
      a(activations),
      keeps_products(activations.keep != KeepLevel::kNothing),
      keeps_all(activations.keep == KeepLevel::kEverything),
      hidden(model.hidden),
      q_width(d.attention.q_width()),
      kv_width(d.attention.kv_width()),
      qkv_width(d.attention.qkv_width()) {}

absl::Status BoundLayer::ForChunks(absl::FunctionRef<absl::Status(const Chunk&)> run) const {
  for (int64_t begin = 0; begin < batch.tokens; begin += context.chunk_tokens) {
    MT_RETURN_IF_ERROR(run({begin, std::min(context.chunk_tokens, batch.tokens - begin)}));
  }
  return absl::OkStatus();
}

absl::Status BoundLayer::Linear(const Chunk& chunk, const void* x, int64_t in, int64_t weight,
                                int64_t out, void* y, int64_t bias, const void* addend,
                                double scale) const {
  MatMulArgs args = Product(context.dtype, chunk.tokens, out, in, scale);
  args.a = x;
  args.a_stride = in;
  args.b = Offset(weights, weight);
  args.b_stride = in;
  args.transpose_b = true;
  args.out = y;
  args.out_stride = out;
  args.bias = bias >= 0 ? Offset(weights, bias) : nullptr;
  args.addend = addend;
  return kernels.MatMul(stream, args);
}

absl::Status BoundLayer::LinearWeightGradient(const Chunk& chunk, const void* x, int64_t in,
                                              const void* dy, int64_t out, int64_t weight,
                                              const TileGradient& gradient, double scale) const {
  for (const ElementRange& rows : TrainedRanges(tile, {weight, weight + out * in})) {
    MatMulArgs args = Product(context.dtype, (rows.end - rows.begin) / in, in, chunk.tokens, scale);
    args.out_dtype = DType::kF32;
    args.a = Offset(dy, (rows.begin - weight) / in);
    args.a_stride = out;
    args.transpose_a = true;
    args.b = x;
    args.b_stride = in;
    args.out = gradient.At(rows.begin);
    args.out_stride = in;
    args.addend = gradient.add ? args.out : nullptr;
    MT_RETURN_IF_ERROR(kernels.MatMul(stream, args));
  }
  return absl::OkStatus();
}

absl::Status BoundLayer::BiasGradient(const Chunk& chunk, const void* dy, int64_t n, int64_t bias,
                                      const TileGradient& gradient) const {
  for (const ElementRange& part : TrainedRanges(tile, {bias, bias + n})) {
    MT_RETURN_IF_ERROR(kernels.BiasBackward(stream, context.dtype, chunk.tokens,
                                            part.end - part.begin, Offset(dy, part.begin - bias), n,
                                            gradient.At(part.begin), gradient.add));
  }
  return absl::OkStatus();
}

absl::Status BoundLayer::LinearInputGradient(const Chunk& chunk, const void* dy, int64_t out,
                                             int64_t weight, int64_t in, void* dx, double scale,
                                             const void* addend) const {
  MatMulArgs args = Product(context.dtype, chunk.tokens, in, out, scale);
  args.a = dy;
  args.a_stride = out;
  args.b = Offset(weights, weight);
  args.b_stride = in;
  args.out = dx;
  args.out_stride = in;
  args.addend = addend;
  return kernels.MatMul(stream, args);
}

RmsNormArgs BoundLayer::NormArgs(const Chunk& chunk, const void* x, int64_t weight, void* y,
                                 float* rstd) const {
  RmsNormArgs args;
  args.dtype = context.dtype;
  args.rows = chunk.tokens;
  args.width = hidden;
  args.epsilon = static_cast<float>(model.norm_epsilon);
  args.x = x;
  args.x_stride = hidden;
  args.weight = Offset(weights, weight);
  args.one_plus_weight = model.one_plus_norms;
  args.y = y;
  args.y_stride = hidden;
  args.rstd = rstd;
  return args;
}

RmsNormBackwardArgs BoundLayer::NormBackwardArgs(const Chunk& chunk, const void* x, int64_t weight,
                                                 const float* rstd, const void* dy, void* dh,
                                                 const TileGradient& gradient) const {
  RmsNormBackwardArgs args;
  args.dtype = context.dtype;
  args.rows = chunk.tokens;
  args.width = hidden;
  args.x = x;
  args.x_stride = hidden;
  args.weight = Offset(weights, weight);
  args.one_plus_weight = model.one_plus_norms;
  args.rstd = rstd;
  args.dy = dy;
  args.dy_stride = hidden;
  args.dx = dh;
  args.dx_stride = hidden;
  args.accumulate = true;
  args.dweight = IsTrained(tile, weight) ? gradient.At(weight) : nullptr;
  args.add_dweight = gradient.add;
  return args;
}

}  // namespace megatrain

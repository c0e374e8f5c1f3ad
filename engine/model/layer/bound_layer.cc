#include "engine/model/layer/bound_layer.h"

#include <algorithm>

#include "engine/base/status.h"

namespace megatrain {
BoundLayer::BoundLayer(const LayerContext& context, const void* weights,
                       const MicroBatchView& batch, const LayerActivations& activations)
    : context(context),
      model(context.layout->model),
      d(model.layers[static_cast<size_t>(context.layer)]),
      tile(context.layout->tiles[static_cast<size_t>(context.tile)]),
      o(tile.offsets),
      kernels(*context.kernels),
      stream(*context.stream),
      weights(static_cast<const char*>(weights)),
      batch(batch),
      a(activations),
      keeps_products(activations.keep != KeepLevel::kNothing),
      keeps_all(activations.keep == KeepLevel::kEverything),
      hidden(model.hidden),
      projected_width(d.projected_width()),
      mixed_width(d.mixed_width()) {}

absl::Status BoundLayer::ForChunks(absl::FunctionRef<absl::Status(const Chunk&)> run) const {
  for (int64_t begin = 0; begin < batch.tokens; begin += context.chunk_tokens) {
    MT_RETURN_IF_ERROR(run({begin, std::min(context.chunk_tokens, batch.tokens - begin)}));
  }
  return absl::OkStatus();
}

absl::Status BoundLayer::Product(const void* x, int64_t weight, const ProductShape& shape, void* y,
                                 const ProductOptions& options) const {
  MatMulArgs args;
  args.m = shape.rows;
  args.n = shape.out;
  args.k = shape.in;
  args.dtype = context.dtype;
  args.out_dtype = options.out_dtype.value_or(context.dtype);
  args.alpha = static_cast<float>(options.scale);
  args.a = x;
  args.a_stride = shape.in;
  args.b = Offset(weights, weight);
  args.b_stride = shape.transposed ? shape.out : shape.in;
  args.transpose_b = !shape.transposed;
  args.out = y;
  args.out_stride = shape.out;
  args.bias = options.bias >= 0 ? Offset(weights, options.bias) : nullptr;
  args.addend = options.addend;
  return kernels.MatMul(stream, args);
}

absl::Status BoundLayer::ProductGradient(const void* dy, int64_t weight, const ProductShape& shape,
                                         void* dx, const ProductOptions& options) const {
  // The same product from the other end.
  return Product(
      dy, weight,
      {.rows = shape.rows, .in = shape.out, .out = shape.in, .transposed = !shape.transposed}, dx,
      options);
}

absl::Status BoundLayer::Linear(const Chunk& chunk, const void* x, int64_t in, int64_t weight,
                                int64_t out, void* y, int64_t bias, const void* addend,
                                double scale) const {
  return Product(x, weight, {.rows = chunk.tokens, .in = in, .out = out}, y,
                 {.bias = bias, .addend = addend, .scale = scale});
}

absl::Status BoundLayer::LinearWeightGradient(const Chunk& chunk, const void* x, int64_t in,
                                              const void* dy, int64_t out, int64_t weight,
                                              const TileGradient& gradient, double scale) const {
  for (const ElementRange& rows : TrainedRanges(tile, {weight, weight + out * in})) {
    MatMulArgs args;
    args.m = (rows.end - rows.begin) / in;
    args.n = in;
    args.k = chunk.tokens;
    args.dtype = context.dtype;
    args.out_dtype = DType::kF32;
    args.alpha = static_cast<float>(scale);
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
  return ProductGradient(dy, weight, {.rows = chunk.tokens, .in = in, .out = out}, dx,
                         {.addend = addend, .scale = scale});
}

absl::Status BoundLayer::ScaleOutput(const Chunk& chunk, void* x) const {
  if (o.output_scale < 0) return absl::OkStatus();
  return kernels.Scale(stream, context.dtype, x, chunk.tokens * hidden,
                       Offset(weights, o.output_scale));
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
  if (weight >= 0) args.weight = Offset(weights, weight);
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
  if (weight >= 0) args.weight = Offset(weights, weight);
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

absl::Status BoundLayer::RotateHeads(const Chunk& chunk, void* x, int64_t stride, int64_t heads,
                                     int rope, bool inverse) const {
  if (rope < 0) return absl::OkStatus();
  const RopeConfig& config = model.ropes[static_cast<size_t>(rope)];
  const RopeTable& table = context.ropes[static_cast<size_t>(rope)];
  RopeArgs args;
  args.dtype = context.dtype;
  args.tokens = chunk.tokens;
  args.heads = heads;
  args.head_dim = d.attention.head_dim;
  args.rotary_dim = config.rotary_dim;
  args.interleaved = config.interleaved;
  args.x = x;
  args.stride = stride;
  args.positions = batch.positions + chunk.begin;
  args.cosine = table.cosine;
  args.sine = table.sine;
  args.inverse = inverse;
  return kernels.Rope(stream, args);
}

AttentionArgs BoundLayer::AttentionCall() const {
  const AttentionDescription& a = d.attention;
  AttentionArgs args;
  args.dtype = context.dtype;
  args.choice = context.attention;
  args.tokens = batch.tokens;
  args.heads = a.heads;
  args.kv_heads = a.kv_heads;
  args.head_dim = a.head_dim;
  args.value_dim = a.value_dim();
  args.scale = static_cast<float>(a.score_scale);
  args.shaping.window = a.window;
  args.shaping.softcap = static_cast<float>(a.softcap);
  if (a.sinks) args.shaping.sinks = Offset(weights, o.sinks);
  args.document_bounds = batch.document_bounds;
  args.document_starts = batch.document_starts;
  args.documents = batch.documents;
  return args;
}

absl::Status BoundLayer::Attend(const AttentionArgs& args) const {
  if (context.cache.data == nullptr) return kernels.Attention(stream, args);
  CachedAttentionArgs cached;
  cached.dtype = args.dtype;
  cached.tokens = args.tokens;
  cached.heads = args.heads;
  cached.kv_heads = args.kv_heads;
  cached.head_dim = args.head_dim;
  cached.value_dim = args.value_dim;
  cached.scale = args.scale;
  cached.shaping = args.shaping;
  cached.first_rows = batch.first_rows;
  cached.positions = batch.positions;
  cached.q = args.q;
  cached.q_stride = args.q_stride;
  cached.k = args.k;
  cached.k_stride = args.k_stride;
  cached.v = args.v;
  cached.v_stride = args.v_stride;
  cached.cache = context.cache.data;
  cached.out = args.out;
  if (d.attention.projects_keys) MT_RETURN_IF_ERROR(kernels.StoreInCache(stream, cached));
  return context.cache.attend ? kernels.CachedAttention(stream, cached)
                              : kernels.Attention(stream, args);
}

}  // namespace megatrain

#include "engine/model/cost/layer_work.h"

#include <string>

namespace megatrain {
namespace {

constexpr double kF32Bytes = sizeof(float);

// Device bytes of an FP32 sum in `chunks` chunks of tokens: read and written by each, and only
// written by the very first.
double SumBytes(double elements, double chunks, bool first) {
  return elements * kF32Bytes * (2 * chunks - (first ? 1 : 0));
}
// Kernels whose sums over rows are split launch a second one that adds the parts.
constexpr double kSplitSum = 2;
// The gradient of attention: rowsum(dO * O), then two kernels.
constexpr double kAttentionBackwardLaunches = 3;

// The numbers that the formulas below share.
struct Sizes {
  explicit Sizes(const WorkShape& s)
      : layer(s.model->layers[static_cast<size_t>(s.layer)]),
        tokens(static_cast<double>(s.tokens)),
        e(static_cast<double>(DTypeBytes(s.dtype))),
        hidden(static_cast<double>(s.model->hidden)),
        q(static_cast<double>(layer.attention.q_width())),
        kv(layer.attention.projects_keys ? static_cast<double>(layer.attention.kv_width()) : 0.0),
        values(layer.attention.projects_keys
                   ? static_cast<double>(layer.attention.kv_heads * layer.attention.value_dim())
                   : 0.0),
        projected(static_cast<double>(layer.projected_width())),
        mixed(static_cast<double>(layer.mixed_width())),
        intermediate(layer.is_dense() ? static_cast<double>(layer.feed_forward.intermediate) : 0),
        vocabulary(static_cast<double>(s.model->vocabulary)) {
    // Query i of a document sees min(i + 1, window) keys: sequence / 2 on average, or window -
    // window^2 / (2 sequence). A product of a pair over all heads takes 2 * q for queries and keys,
    // and 2 * mixed for values.
    const double sequence = static_cast<double>(s.sequence_length);
    const int64_t limit = layer.attention.window;
    const double window =
        limit > 0 && limit < s.sequence_length ? static_cast<double>(limit) : sequence;
    const double pairs = tokens * (window - window * window / (2 * sequence));
    key_product_flops = pairs * 2 * q;
    value_product_flops = pairs * 2 * mixed;
  }
  const LatentDescription& latent() const { return layer.attention.latent; }
  // Of a layer with experts only the half with attention is counted here (expert_work.h).
  bool dense() const { return layer.is_dense(); }
  bool qk_norm() const { return layer.attention.qk_norm != QkNorm::kNone; }
  // Parameters of the products from latents to heads; 0 without latents.
  double expansions() const {
    return q * static_cast<double>(latent().query_rank) +
           static_cast<double>(layer.attention.expanded_width() * latent().key_value_rank);
  }
  // The number of those products.
  double latents() const { return (latent().query_rank > 0) + latent().is_there(); }
  double ranks() const {
    return static_cast<double>(latent().query_rank + latent().key_value_rank);
  }
  bool delta_net() const { return layer.attention_kind() == AttentionKind::kDeltaNet; }
  // Parameters of the products of a layer, without its last one.
  double layer_matrices_but_down() const {
    return hidden * projected + expansions() + mixed * hidden + 2 * hidden * intermediate;
  }
  double down() const { return hidden * intermediate; }
  // Those of its per-layer input: from the stream, from the embedding, and back.
  double per_layer() const { return 3 * hidden * per_layer_width(); }
  double per_layer_width() const { return static_cast<double>(layer.per_layer_input.width); }
  // The number of all of the layer's products: two of a half, those from latents, and those of a
  // per-layer input.
  double products() const { return (dense() ? 4 : 2) + latents() + (per_layer() > 0 ? 3 : 0); }
  // The layer's norms of the residual stream, and of what is added to it.
  double norms() const {
    return !layer.attention_norms.norm.empty() +
           (dense() && !layer.feed_forward_norms.norm.empty());
  }
  double post_norms() const {
    return !layer.attention_norms.post_norm.empty() +
           (dense() && !layer.feed_forward_norms.post_norm.empty());
  }

  const LayerDescription& layer;
  double tokens, e, hidden, q, kv, values, projected, mixed, intermediate, vocabulary;
  double key_product_flops, value_product_flops;
};

// `elements` a token, read or written once each.
LayerWork Pass(const Sizes& s, double elements, double launches = 1) {
  return {.device_bytes = elements * s.tokens * s.e, .launches = launches};
}

LayerWork Products(const Sizes& s, double parameters, double launches) {
  return {.product_flops = 2 * s.tokens * parameters, .launches = launches};
}

LayerWork Norm(const Sizes& s) { return Pass(s, 2 * s.hidden); }
LayerWork NormIf(const Sizes& s, const std::string& name) {
  return name.empty() ? LayerWork{} : Norm(s);
}
// Reads x, the gradient by y and the residual's, and writes the latter.
LayerWork NormBackward(const Sizes& s) { return Pass(s, 4 * s.hidden, kSplitSum); }
// Reads x and the gradient by y, and writes that by x.
LayerWork PostNormBackward(const Sizes& s) { return Pass(s, 3 * s.hidden, kSplitSum); }
// The end of a half of a layer: its last product adds the residual stream, or the norm after it
// does.
LayerWork Branch(const Sizes& s, double parameters, const NormNames& norms) {
  return Products(s, parameters, 1) +
         (norms.post_norm.empty() ? Pass(s, s.hidden, 0) : Pass(s, 3 * s.hidden));
}
LayerWork Glu(const Sizes& s) { return Pass(s, 3 * s.intermediate); }
// Reads gate, up and the gradient; writes the gradients of the first two and SwiGLU's output.
LayerWork GluBackward(const Sizes& s) { return Pass(s, 6 * s.intermediate); }
// The gradient by the ends of latent keys is rotated once for all heads.
LayerWork Rope(const Sizes& s, bool backward = false) {
  const AttentionDescription& a = s.layer.attention;
  if (s.latent().is_there()) {
    const double end = static_cast<double>(s.latent().rotary_dim);
    const double heads = static_cast<double>(a.heads);
    return Pass(s, 2 * end * (heads + (backward ? 1 : heads)), 2);
  }
  if (a.query_rope == a.key_rope) return a.key_rope < 0 ? LayerWork{} : Pass(s, 2 * (s.q + s.kv));
  return (a.query_rope < 0 ? LayerWork{} : Pass(s, 2 * s.q)) +
         (a.key_rope < 0 ? LayerWork{} : Pass(s, 2 * s.kv));
}
// Queries' and keys', and perhaps values': read and written, apart.
LayerWork HeadNorms(const Sizes& s) {
  const LayerWork norms = Pass(s, 2 * (s.q + s.kv), 2);
  return s.layer.attention.value_norm ? norms + Pass(s, 2 * s.kv) : norms;
}
LayerWork HeadNormsBackward(const Sizes& s) {
  const AttentionDescription& a = s.layer.attention;
  const LayerWork norms = Pass(s, 3 * (s.q + s.kv), 2 * kSplitSum);
  // Values that are the keys add to the keys' gradient.
  return a.value_norm ? norms + Pass(s, (a.values_are_keys ? 4 : 3) * s.kv) : norms;
}
// The factor of the layer's result, or of the gradient by it.
LayerWork OutputScale(const Sizes& s) {
  return s.dense() && s.layer.output_scale ? Pass(s, 2 * s.hidden) : LayerWork{};
}

// The per-layer input: rows are looked up, normed, put beside the gate, and go through the unit;
// the result goes through a norm.
LayerWork PerLayerInput(const Sizes& s) {
  if (s.per_layer() == 0) return {};
  return Products(s, s.per_layer(), 3) + Pass(s, 12 * s.per_layer_width() + 3 * s.hidden, 6);
}
// Without its products. At most a row of the table's sum a token.
LayerWork PerLayerInputBackward(const Sizes& s) {
  if (s.per_layer() == 0) return {};
  return Pass(s, 13 * s.per_layer_width() + 3 * s.hidden, 4 + 3 * kSplitSum) +
         LayerWork{.device_bytes = s.tokens * (2 * s.hidden + 2 * s.per_layer_width()) * kF32Bytes};
}

// Keys and values, which are put together from what was expanded, and queries without a latent:
// read and written.
LayerWork CopiesToHeads(const Sizes& s) {
  if (!s.latent().is_there()) return {};
  const bool queries = s.latent().query_rank == 0;
  return Pass(s, 2 * (s.kv + s.values + (queries ? s.q : 0)), queries ? 4 : 3);
}
// The latents' norms, and their products to heads.
LayerWork Expansions(const Sizes& s) {
  return Pass(s, 2 * s.ranks(), s.latents()) + Products(s, s.expansions(), s.latents());
}

LayerWork PrepareQueriesAndKeys(const Sizes& s) {
  if (s.latent().is_there()) return Expansions(s) + CopiesToHeads(s) + Rope(s);
  return s.qk_norm() ? HeadNorms(s) + Rope(s) : Rope(s);
}

// Of attention's result: reads it and the gate.
LayerWork Gate(const Sizes& s) {
  return s.layer.attention.output_gate ? Pass(s, 3 * s.q) : LayerWork{};
}
// Reads result, gate and gradient; writes the gated result and two gradients.
LayerWork GateBackward(const Sizes& s) {
  return s.layer.attention.output_gate ? Pass(s, 6 * s.q) : LayerWork{};
}

// A delta net's convolution and its gated norm.
LayerWork ConvAndNorm(const Sizes& s) {
  return Pass(s, 2 * static_cast<double>(s.layer.delta_net.channels()) + 3 * s.mixed, 2);
}
// The convolution reads inputs and gradients and writes these; the norm as GateBackward.
LayerWork ConvAndNormBackward(const Sizes& s) {
  return Pass(s, 3 * static_cast<double>(s.layer.delta_net.channels()) + 6 * s.mixed,
              2 * kSplitSum);
}
// The operations of the delta rule for a token and all heads: a state is decayed, read with a key,
// changed by one pair and read with a query.
double DeltaFlops(const Sizes& s) {
  return s.tokens * 7 * s.mixed * static_cast<double>(s.layer.delta_net.key_dim);
}

// What mixes the tokens, from the projections to the input of the last product.
LayerWork Mix(const Sizes& s) {
  if (s.delta_net()) {
    return ConvAndNorm(s) + LayerWork{.attention_forward_flops = DeltaFlops(s), .launches = 1};
  }
  // Scores, and the values weighted by them.
  const LayerWork attention = {
      .attention_forward_flops = s.key_product_flops + s.value_product_flops, .launches = 1};
  return PrepareQueriesAndKeys(s) + attention + Gate(s);
}

// What of it is computed again where the results of products and attention were kept.
LayerWork RecomputeMix(const Sizes& s) {
  if (s.delta_net()) return ConvAndNorm(s);
  const bool prepares = s.qk_norm() || s.latent().is_there();
  return (prepares ? PrepareQueriesAndKeys(s) : LayerWork{}) + Gate(s);
}

LayerWork MixBackward(const Sizes& s) {
  if (s.delta_net()) {
    // The states once more, then two gradients of each operation.
    return ConvAndNormBackward(s) +
           LayerWork{.attention_backward_flops = 3 * DeltaFlops(s), .launches = kSplitSum};
  }
  // Scores once more, then the gradients by probabilities, values, queries and keys.
  const LayerWork attention = {
      .attention_backward_flops = 3 * s.key_product_flops + 2 * s.value_product_flops,
      .launches = kAttentionBackwardLaunches};
  return Rope(s, /*backward=*/true) + attention +
         (s.qk_norm() ? HeadNormsBackward(s) : LayerWork{}) + CopiesToHeads(s) +
         Pass(s, 3 * s.ranks(), s.latents() * kSplitSum) + GateBackward(s);
}

// The work from a layer's input to the result of its first half before the last product.
LayerWork AttentionForward(const Sizes& s) {
  return NormIf(s, s.layer.attention_norms.norm) + Products(s, s.hidden * s.projected, 1) + Mix(s);
}

// The work from there to gate and up, or to the end of the half.
LayerWork ToGateUp(const Sizes& s) {
  const LayerWork output = Branch(s, s.mixed * s.hidden, s.layer.attention_norms);
  if (!s.dense()) return output;
  return output + NormIf(s, s.layer.feed_forward_norms.norm) +
         Products(s, 2 * s.hidden * s.intermediate, 1);
}

double Chunks(int64_t tokens, int64_t chunk_tokens) {
  return static_cast<double>((tokens + chunk_tokens - 1) / chunk_tokens);
}
// All counts as launched once a chunk, though attention and its gate are launched only once.
LayerWork InChunks(const WorkShape& shape, LayerWork work) {
  work.launches *= Chunks(shape.tokens, shape.layer_chunk_tokens);
  return work;
}

}  // namespace

LayerWork& LayerWork::operator+=(const LayerWork& other) {
  product_flops += other.product_flops;
  attention_forward_flops += other.attention_forward_flops;
  attention_backward_flops += other.attention_backward_flops;
  device_bytes += other.device_bytes;
  launches += other.launches;
  return *this;
}

LayerWork operator+(LayerWork a, const LayerWork& b) { return a += b; }

LayerWork operator*(double times, LayerWork work) {
  for (double* part : {&work.product_flops, &work.attention_forward_flops,
                       &work.attention_backward_flops, &work.device_bytes, &work.launches}) {
    *part *= times;
  }
  return work;
}

LayerWork EmbeddingForwardWork(const WorkShape& shape) {
  const Sizes s(shape);
  const bool copies = shape.model->layers.front().per_layer_input.width > 0;
  return Pass(s, 2 * s.hidden) + (copies ? Pass(s, 2 * s.hidden) : LayerWork{});
}

LayerWork EmbeddingBackwardWork(const WorkShape& shape, bool first) {
  const Sizes s(shape);
  // At most a row of the sum a token; equal ids share one.
  LayerWork work = Pass(s, s.hidden, kSplitSum);
  work.device_bytes += SumBytes(s.tokens * s.hidden, 1, /*first=*/false);
  if (first) work += {.device_bytes = s.vocabulary * s.hidden * kF32Bytes, .launches = 1};
  return work;
}

LayerWork DecoderLayerForwardWork(const WorkShape& shape) {
  const Sizes s(shape);
  if (!s.dense()) return InChunks(shape, AttentionForward(s) + ToGateUp(s));
  return InChunks(shape, AttentionForward(s) + ToGateUp(s) + Glu(s) +
                             Branch(s, s.down(), s.layer.feed_forward_norms) + PerLayerInput(s) +
                             OutputScale(s));
}

LayerWork DecoderLayerRecomputeWork(const WorkShape& shape, KeepLevel level) {
  const Sizes s(shape);
  switch (level) {
    case KeepLevel::kEverything:
      break;
    case KeepLevel::kCheapRecomputed: {
      return InChunks(shape, s.norms() * Norm(s) + RecomputeMix(s));
    }
    case KeepLevel::kNothing: {
      // The input's norm twice: for queries, keys and values, and for the gradient of their
      // weights.
      LayerWork work = AttentionForward(s) + NormIf(s, s.layer.attention_norms.norm);
      if (s.dense() || s.post_norms() > 0) work += ToGateUp(s);
      if (s.dense() && (!s.layer.feed_forward_norms.post_norm.empty() || s.per_layer() > 0)) {
        work += Glu(s) + Branch(s, s.down(), s.layer.feed_forward_norms) + PerLayerInput(s);
      }
      return InChunks(shape, work);
    }
  }
  return {};
}

LayerWork DecoderLayerBackwardWork(const WorkShape& shape, bool first) {
  const Sizes s(shape);
  const double matrices = s.layer_matrices_but_down() + s.down() + s.per_layer();
  // Each matrix has a gradient by the input and one by the weight.
  LayerWork work = 2 * Products(s, matrices, s.products()) +
                   (s.dense() ? GluBackward(s) : LayerWork{}) + s.norms() * NormBackward(s) +
                   s.post_norms() * PostNormBackward(s) + MixBackward(s) +
                   PerLayerInputBackward(s) + OutputScale(s);
  // Without a norm before a half, its product adds to the residual stream's gradient.
  work += ((s.dense() ? 2 : 1) - s.norms()) * Pass(s, s.hidden, 0);
  if (s.layer.attention.qkv_bias) work += Pass(s, s.projected, kSplitSum);
  if (s.layer.attention.output_bias) work += Pass(s, s.hidden, kSplitSum);
  work = InChunks(shape, work);
  work.device_bytes += SumBytes(matrices, Chunks(shape.tokens, shape.layer_chunk_tokens), first);
  if (first) {
    const double rows = static_cast<double>(s.layer.per_layer_input.vocabulary);
    work.device_bytes += rows * s.per_layer_width() * kF32Bytes;
  }
  return work;
}

LayerWork DecoderLayerWeightGradientWork(const WorkShape& shape) {
  const Sizes s(shape);
  const double matrices = s.layer_matrices_but_down() + s.down() + s.per_layer();
  LayerWork work = InChunks(shape, Products(s, matrices, s.products()));
  work.device_bytes += SumBytes(matrices, Chunks(shape.tokens, shape.layer_chunk_tokens), false);
  return work;
}

LayerWork HeadWeightGradientWork(const WorkShape& shape) {
  const Sizes s(shape);
  const double chunks = Chunks(shape.tokens, shape.head_chunk_tokens);
  LayerWork work = Products(s, s.vocabulary * s.hidden, chunks);
  work.device_bytes += SumBytes(s.vocabulary * s.hidden, chunks, false);
  return work;
}

LayerWork HeadForwardBackwardWork(const WorkShape& shape, bool first) {
  const Sizes s(shape);
  const double chunks = Chunks(shape.tokens, shape.head_chunk_tokens);
  LayerWork work = 3 * Products(s, s.vocabulary * s.hidden, chunks);
  // The gradient of the whole matrix, once a chunk.
  work.device_bytes += SumBytes(s.vocabulary * s.hidden, chunks, first);
  // Logits are written in FP32, read for their maximum and sum and read for their gradient, which
  // is written in the model's precision.
  work.device_bytes += s.tokens * s.vocabulary * ((kF32Bytes - s.e) + 2 * kF32Bytes + s.e);
  work.launches += chunks;
  work += Pass(s, 2 * s.hidden, chunks);              // the norm
  work += Pass(s, 3 * s.hidden, kSplitSum * chunks);  // its gradient, which adds to none
  work.launches += 1;                                 // the sum of the losses
  return work;
}

LayerWork HeadLossWork(const WorkShape& shape) {
  const Sizes s(shape);
  const double chunks = Chunks(shape.tokens, shape.head_chunk_tokens);
  LayerWork work = Products(s, s.vocabulary * s.hidden, chunks) + Pass(s, 2 * s.hidden, chunks);
  work.device_bytes += s.tokens * s.vocabulary * ((kF32Bytes - s.e) + kF32Bytes);
  work.launches += chunks + 1;  // cross-entropy by chunks; the sum of the losses
  return work;
}

LayerWork FinishGradientWork(int64_t elements, int64_t element_bytes) {
  const double n = static_cast<double>(elements);
  const double rounded = static_cast<double>(element_bytes);
  const LayerWork sum = {.device_bytes = n * kF32Bytes, .launches = kSplitSum};
  if (rounded >= kF32Bytes) return sum;
  return sum + LayerWork{.device_bytes = n * (kF32Bytes + rounded), .launches = 1};
}

}  // namespace megatrain

#include "engine/model/layer/layer_work.h"

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
        kv(static_cast<double>(layer.attention.kv_width())),
        intermediate(layer.is_dense() ? static_cast<double>(layer.feed_forward.intermediate) : 0),
        vocabulary(static_cast<double>(s.model->vocabulary)) {
    // Query i of a document sees min(i + 1, window) keys: sequence / 2 on average, or window -
    // window^2 / (2 sequence). A product of a pair over all heads takes 2 * q.
    const double sequence = static_cast<double>(s.sequence_length);
    const int64_t limit = layer.attention.window;
    const double window =
        limit > 0 && limit < s.sequence_length ? static_cast<double>(limit) : sequence;
    pair_product_flops = tokens * (window - window * window / (2 * sequence)) * 2 * q;
  }
  double projected() const { return static_cast<double>(layer.attention.projected_width()); }
  // Of a layer with experts only the half with attention is counted here (expert_work.h).
  bool dense() const { return layer.is_dense(); }
  bool qk_norm() const { return layer.attention.qk_norm != QkNorm::kNone; }
  // Parameters of the products of a layer, without its last one.
  double layer_matrices_but_down() const {
    return hidden * projected() + q * hidden + 2 * hidden * intermediate;
  }
  double down() const { return hidden * intermediate; }
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
  double tokens, e, hidden, q, kv, intermediate, vocabulary, pair_product_flops;
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
LayerWork Rope(const Sizes& s) {
  const AttentionDescription& a = s.layer.attention;
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

LayerWork PrepareQueriesAndKeys(const Sizes& s) {
  return s.qk_norm() ? HeadNorms(s) + Rope(s) : Rope(s);
}

// The work from a layer's input to attention's output.
LayerWork AttentionForward(const Sizes& s) {
  // Scores, and the values weighted by them.
  const LayerWork attention = {.attention_forward_flops = 2 * s.pair_product_flops, .launches = 1};
  return NormIf(s, s.layer.attention_norms.norm) + Products(s, s.hidden * s.projected(), 1) +
         PrepareQueriesAndKeys(s) + attention;
}

// The work from there to gate and up, or to the end of the half.
LayerWork ToGateUp(const Sizes& s) {
  const LayerWork output = Branch(s, s.q * s.hidden, s.layer.attention_norms);
  if (!s.dense()) return output;
  return output + NormIf(s, s.layer.feed_forward_norms.norm) +
         Products(s, 2 * s.hidden * s.intermediate, 1);
}

double Chunks(int64_t tokens, int64_t chunk_tokens) {
  return static_cast<double>((tokens + chunk_tokens - 1) / chunk_tokens);
}
// All but attention is launched once a chunk.
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
  return Pass(s, 2 * s.hidden);
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
                             Branch(s, s.down(), s.layer.feed_forward_norms) + OutputScale(s));
}

LayerWork DecoderLayerRecomputeWork(const WorkShape& shape, KeepLevel level) {
  const Sizes s(shape);
  switch (level) {
    case KeepLevel::kEverything:
      break;
    case KeepLevel::kCheapRecomputed: {
      const LayerWork norms = s.norms() * Norm(s);
      return InChunks(shape, s.qk_norm() ? norms + PrepareQueriesAndKeys(s) : norms);
    }
    case KeepLevel::kNothing: {
      // The input's norm twice: for queries, keys and values, and for the gradient of their
      // weights.
      LayerWork work = AttentionForward(s) + NormIf(s, s.layer.attention_norms.norm);
      if (s.dense() || s.post_norms() > 0) work += ToGateUp(s);
      if (s.dense() && !s.layer.feed_forward_norms.post_norm.empty()) {
        work += Glu(s) + Branch(s, s.down(), s.layer.feed_forward_norms);
      }
      return InChunks(shape, work);
    }
  }
  return {};
}

LayerWork DecoderLayerBackwardWork(const WorkShape& shape, bool first) {
  const Sizes s(shape);
  const double matrices = s.layer_matrices_but_down() + s.down();
  // Each of the four matrices has a gradient by the input and one by the weight.
  LayerWork work = 2 * Products(s, matrices, 4) + GluBackward(s) + s.norms() * NormBackward(s) +
                   s.post_norms() * PostNormBackward(s) + Rope(s) + OutputScale(s);
  // Without a norm before a half, its product adds to the residual stream's gradient.
  work += ((s.dense() ? 2 : 1) - s.norms()) * Pass(s, s.hidden, 0);
  // Scores once more, then the gradients by probabilities, values, queries and keys.
  work += {.attention_backward_flops = 5 * s.pair_product_flops,
           .launches = kAttentionBackwardLaunches};
  if (s.qk_norm()) work += HeadNormsBackward(s);
  if (s.layer.attention.qkv_bias) work += Pass(s, s.projected(), kSplitSum);
  if (s.layer.attention.output_bias) work += Pass(s, s.hidden, kSplitSum);
  work = InChunks(shape, work);
  work.device_bytes += SumBytes(matrices, Chunks(shape.tokens, shape.layer_chunk_tokens), first);
  return work;
}

LayerWork DecoderLayerWeightGradientWork(const WorkShape& shape) {
  const Sizes s(shape);
  const double matrices = s.layer_matrices_but_down() + s.down();
  LayerWork work = InChunks(shape, Products(s, matrices, 4));
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

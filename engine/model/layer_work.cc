#include "engine/model/layer_work.h"

namespace megatrain {
namespace {

constexpr double kF32Bytes = sizeof(float);
// A gradient accumulator: read and written.
constexpr double kAccumulateBytes = 2 * kF32Bytes;
// Kernels whose sums over rows are split launch a second one that adds the parts.
constexpr double kSplitSum = 2;
// The gradient of attention: rowsum(dO * O), then two kernels.
constexpr double kAttentionBackwardLaunches = 3;

// The numbers that the formulas below share.
struct Sizes {
  explicit Sizes(const WorkShape& s)
      : tokens(static_cast<double>(s.tokens)),
        e(static_cast<double>(DTypeBytes(s.dtype))),
        hidden(static_cast<double>(s.config.hidden)),
        q(static_cast<double>(s.config.heads * s.config.head_dim)),
        kv(static_cast<double>(s.config.kv_heads * s.config.head_dim)),
        intermediate(static_cast<double>(s.config.intermediate)),
        vocabulary(static_cast<double>(s.config.vocabulary)) {
    // Queries see half of their document on average: tokens * sequence / 2 pairs, and a product of
    // a pair over all heads takes 2 * q.
    pair_product_flops = tokens * static_cast<double>(s.sequence_length) / 2 * 2 * q;
  }
  double qkv() const { return q + 2 * kv; }
  // Parameters of the products of a layer, without its last one.
  double layer_matrices_but_down() const {
    return hidden * qkv() + q * hidden + 2 * hidden * intermediate;
  }
  double down() const { return hidden * intermediate; }

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
// Reads x, the gradient by y and the residual's, and writes the latter.
LayerWork NormBackward(const Sizes& s) { return Pass(s, 4 * s.hidden, kSplitSum); }
LayerWork SwiGlu(const Sizes& s) { return Pass(s, 3 * s.intermediate); }
LayerWork Rope(const Sizes& s) { return Pass(s, 2 * (s.q + s.kv)); }
// Queries' and keys': read and written, apart.
LayerWork HeadNorms(const Sizes& s) { return Pass(s, 2 * (s.q + s.kv), 2); }
LayerWork HeadNormsBackward(const Sizes& s) { return Pass(s, 3 * (s.q + s.kv), 2 * kSplitSum); }

LayerWork PrepareQueriesAndKeys(const WorkShape& shape, const Sizes& s) {
  return shape.config.qk_norm ? HeadNorms(s) + Rope(s) : Rope(s);
}

double Chunks(const WorkShape& shape) {
  return static_cast<double>((shape.tokens + shape.head_chunk_tokens - 1) /
                             shape.head_chunk_tokens);
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

LayerWork EmbeddingBackwardWork(const WorkShape& shape) {
  const Sizes s(shape);
  // At most a row of the accumulator a token; equal ids share one.
  return Pass(s, s.hidden, kSplitSum) +
         LayerWork{.device_bytes = s.tokens * s.hidden * kAccumulateBytes};
}

LayerWork DecoderLayerForwardWork(const WorkShape& shape) {
  const Sizes s(shape);
  // The last product adds the residual stream.
  return DecoderLayerRecomputeWork(shape, KeepLevel::kNothing) + Products(s, s.down(), 1) +
         Pass(s, s.hidden, 0);
}

LayerWork DecoderLayerRecomputeWork(const WorkShape& shape, KeepLevel level) {
  const Sizes s(shape);
  switch (level) {
    case KeepLevel::kEverything:
      return {};
    case KeepLevel::kCheapRecomputed: {
      const LayerWork norms_and_swiglu = Norm(s) + Norm(s) + SwiGlu(s);
      return shape.config.qk_norm ? norms_and_swiglu + PrepareQueriesAndKeys(shape, s)
                                  : norms_and_swiglu;
    }
    case KeepLevel::kNothing:
      break;
  }
  // All but the last product. Scores, and the values weighted by them; the product behind attention
  // adds the residual stream.
  const LayerWork attention = {.attention_forward_flops = 2 * s.pair_product_flops, .launches = 1};
  return Norm(s) + Products(s, s.layer_matrices_but_down(), 3) + PrepareQueriesAndKeys(shape, s) +
         attention + Pass(s, s.hidden, 0) + Norm(s) + SwiGlu(s);
}

LayerWork DecoderLayerBackwardWork(const WorkShape& shape) {
  const Sizes s(shape);
  const double matrices = s.layer_matrices_but_down() + s.down();
  // Of four matrices each, by the input and by the weight, which is added to its accumulator.
  LayerWork work =
      2 * Products(s, matrices, 4) + LayerWork{.device_bytes = matrices * kAccumulateBytes};
  work += Pass(s, 5 * s.intermediate);  // SwiGLU: reads gate, up and the gradient, writes two
  work += 2 * NormBackward(s);
  // Scores once more, then the gradients by probabilities, values, queries and keys.
  work += {.attention_backward_flops = 5 * s.pair_product_flops,
           .launches = kAttentionBackwardLaunches};
  work += Rope(s);
  if (shape.config.qk_norm) work += HeadNormsBackward(s);
  if (shape.config.qkv_bias) work += Pass(s, s.qkv(), kSplitSum);
  return work;
}

LayerWork HeadForwardBackwardWork(const WorkShape& shape) {
  const Sizes s(shape);
  const double chunks = Chunks(shape);
  LayerWork work = 3 * Products(s, s.vocabulary * s.hidden, chunks);
  // The gradient of the whole matrix, once a chunk.
  work.device_bytes += chunks * s.vocabulary * s.hidden * kAccumulateBytes;
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
  const double chunks = Chunks(shape);
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

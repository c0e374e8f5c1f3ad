#include "engine/model/decoder_layer.h"

#include <algorithm>
#include <cmath>

#include "absl/functional/function_ref.h"
#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

// Tokens [begin, begin + tokens) of the micro-batch.
struct Chunk {
  int64_t begin = 0, tokens = 0;
};

// Weight gradients of one tile, FP32 in the tile's layout.
struct TileGradient {
  float* data = nullptr;
  bool add = true;  // false: sums are written, not added

  float* At(int64_t offset) const { return data + offset; }
};

// One layer bound to its weights: sizes and shorthands for the kernels.
class BoundLayer {
 public:
  BoundLayer(const LayerContext& context, const void* weights, const MicroBatchView& batch,
             const LayerActivations& activations)
      : context_(context),
        c_(context.layout->config),
        o_(context.layout->layer_offsets),
        kernels_(*context.kernels),
        stream_(*context.stream),
        weights_(static_cast<const char*>(weights)),
        batch_(batch),
        a_(activations),
        keeps_products_(activations.keep != KeepLevel::kNothing),
        keeps_all_(activations.keep == KeepLevel::kEverything),
        tokens_(batch.tokens),
        q_width_(c_.heads * c_.head_dim),
        kv_width_(c_.kv_heads * c_.head_dim),
        qkv_width_(q_width_ + 2 * kv_width_) {}

  absl::Status Forward(const void* x, void* y) {
    MT_RETURN_IF_ERROR(AttentionForward(x));
    return ForChunks([&](const Chunk& chunk) {
      MT_RETURN_IF_ERROR(AttentionOutput(chunk, x));
      MT_RETURN_IF_ERROR(PostNorm(chunk));
      MT_RETURN_IF_ERROR(GateUp(chunk));
      MT_RETURN_IF_ERROR(SwiGlu(chunk));
      return Linear(chunk, a_.activated, c_.intermediate, o_.down, c_.hidden,
                    Rows(y, chunk, c_.hidden), -1, Middle(chunk));
    });
  }

  absl::Status Backward(const void* x, const LayerBackwardScratch& scratch, void* dh,
                        float* gradient, bool first) {
    const auto gradient_of = [&](const Chunk& chunk) {
      return TileGradient{gradient, !(first && chunk.begin == 0)};
    };
    if (!keeps_products_) {
      MT_RETURN_IF_ERROR(AttentionForward(x));
    } else if (!keeps_all_ && c_.qk_norm) {  // without QK norm the kept q and k are rotated already
      MT_RETURN_IF_ERROR(
          ForChunks([&](const Chunk& chunk) { return PrepareQueriesAndKeys(chunk); }));
    }
    MT_RETURN_IF_ERROR(ForChunks([&](const Chunk& chunk) {
      void* const dh_rows = Rows(dh, chunk, c_.hidden);
      MT_RETURN_IF_ERROR(RecomputeMlp(chunk, x));
      MT_RETURN_IF_ERROR(MlpBackward(chunk, dh_rows, gradient_of(chunk)));
      return AttentionOutputBackward(chunk, dh_rows, scratch, gradient_of(chunk));
    }));
    MT_RETURN_IF_ERROR(AttentionBackward(scratch));
    return ForChunks([&](const Chunk& chunk) {
      return AttentionInputBackward(chunk, x, scratch, dh, gradient_of(chunk));
    });
  }

  AttentionBackwardArgs AttentionGradient(const LayerBackwardScratch& scratch) const {
    AttentionBackwardArgs args;
    args.forward = Attention();
    args.dout = scratch.dattention;
    args.dq = scratch.dqkv;
    args.dk = Offset(scratch.dqkv, q_width_);
    args.dv = Offset(scratch.dqkv, q_width_ + kv_width_);
    args.dq_stride = args.dk_stride = args.dv_stride = qkv_width_;
    args.workspace = scratch.workspace;
    args.workspace_bytes = scratch.workspace_bytes;
    return args;
  }

 private:
  absl::Status ForChunks(absl::FunctionRef<absl::Status(const Chunk&)> run) const {
    for (int64_t begin = 0; begin < tokens_; begin += context_.chunk_tokens) {
      MT_RETURN_IF_ERROR(run({begin, std::min(context_.chunk_tokens, tokens_ - begin)}));
    }
    return absl::OkStatus();
  }

  // --- Parts of the layer, forward.

  // From x to the attention's output.
  absl::Status AttentionForward(const void* x) {
    MT_RETURN_IF_ERROR(ForChunks([&](const Chunk& chunk) {
      MT_RETURN_IF_ERROR(InputNorm(chunk, x));
      MT_RETURN_IF_ERROR(Linear(chunk, InputNormed(chunk), c_.hidden, o_.qkv, qkv_width_,
                                Rows(a_.qkv, chunk, qkv_width_), o_.qkv_bias));
      return PrepareQueriesAndKeys(chunk);
    }));
    return kernels_.Attention(stream_, Attention());
  }

  absl::Status InputNorm(const Chunk& chunk, const void* x) {
    return kernels_.RmsNorm(stream_, NormArgs(chunk, Rows(x, chunk, c_.hidden), o_.input_norm,
                                              InputNormed(chunk), a_.input_rstd + chunk.begin));
  }

  // Normalises (Qwen3) and rotates q and k.
  absl::Status PrepareQueriesAndKeys(const Chunk& chunk) {
    void* const queries = Rows(Queries(), chunk, QueryKeyStride());
    if (c_.qk_norm) {
      const void* const raw = Rows(a_.qkv, chunk, qkv_width_);
      MT_RETURN_IF_ERROR(
          HeadNorm(chunk, raw, c_.heads, o_.q_norm, queries, QueryRstd(chunk.begin)));
      MT_RETURN_IF_ERROR(HeadNorm(chunk, Offset(raw, q_width_), c_.kv_heads, o_.k_norm,
                                  Offset(queries, q_width_), KeyRstd(chunk.begin)));
    }
    return Rotate(chunk, queries, c_.heads + c_.kv_heads, QueryKeyStride(), /*inverse=*/false);
  }

  absl::Status AttentionOutput(const Chunk& chunk, const void* x) {
    return Linear(chunk, Rows(a_.attention, chunk, q_width_), q_width_, o_.o, c_.hidden,
                  Middle(chunk), -1, Rows(x, chunk, c_.hidden));
  }

  absl::Status PostNorm(const Chunk& chunk) {
    return kernels_.RmsNorm(stream_, NormArgs(chunk, Middle(chunk), o_.post_norm, PostNormed(chunk),
                                              a_.post_rstd + chunk.begin));
  }

  absl::Status GateUp(const Chunk& chunk) {
    return Linear(chunk, PostNormed(chunk), c_.hidden, o_.gate_up, 2 * c_.intermediate,
                  GateUpRows(chunk));
  }

  absl::Status SwiGlu(const Chunk& chunk) {
    SwiGluArgs args;
    args.dtype = context_.dtype;
    args.tokens = chunk.tokens;
    args.width = c_.intermediate;
    args.gate_up = GateUpRows(chunk);
    args.out = a_.activated;
    return kernels_.SwiGlu(stream_, args);
  }

  // --- Backward. Each input is dead once its weight gradient is summed, so its gradient takes its
  // place.

  absl::Status RecomputeMlp(const Chunk& chunk, const void* x) {
    if (!keeps_products_) MT_RETURN_IF_ERROR(AttentionOutput(chunk, x));
    if (!keeps_all_) MT_RETURN_IF_ERROR(PostNorm(chunk));
    return keeps_products_ ? absl::OkStatus() : GateUp(chunk);
  }

  absl::Status MlpBackward(const Chunk& chunk, void* dh, const TileGradient& gradient) {
    MT_RETURN_IF_ERROR(
        LinearInputGradient(chunk, dh, c_.hidden, o_.down, c_.intermediate, a_.activated));
    SwiGluBackwardArgs swiglu;
    swiglu.dtype = context_.dtype;
    swiglu.tokens = chunk.tokens;
    swiglu.width = c_.intermediate;
    swiglu.gate_up = GateUpRows(chunk);
    swiglu.dout = a_.activated;
    swiglu.dgate_up = GateUpRows(chunk);
    MT_RETURN_IF_ERROR(kernels_.SwiGluBackward(stream_, swiglu));
    MT_RETURN_IF_ERROR(LinearWeightGradient(chunk, a_.activated, c_.intermediate, dh, c_.hidden,
                                            o_.down, gradient));
    MT_RETURN_IF_ERROR(LinearWeightGradient(chunk, PostNormed(chunk), c_.hidden, GateUpRows(chunk),
                                            2 * c_.intermediate, o_.gate_up, gradient));
    MT_RETURN_IF_ERROR(LinearInputGradient(chunk, GateUpRows(chunk), 2 * c_.intermediate,
                                           o_.gate_up, c_.hidden, PostNormed(chunk)));
    return kernels_.RmsNormBackward(
        stream_, NormBackwardArgs(chunk, Middle(chunk), o_.post_norm, a_.post_rstd + chunk.begin,
                                  PostNormed(chunk), dh, gradient));
  }

  absl::Status AttentionOutputBackward(const Chunk& chunk, const void* dh,
                                       const LayerBackwardScratch& scratch,
                                       const TileGradient& gradient) {
    MT_RETURN_IF_ERROR(LinearWeightGradient(chunk, Rows(a_.attention, chunk, q_width_), q_width_,
                                            dh, c_.hidden, o_.o, gradient));
    return LinearInputGradient(chunk, dh, c_.hidden, o_.o, q_width_,
                               Rows(scratch.dattention, chunk, q_width_));
  }

  absl::Status AttentionBackward(const LayerBackwardScratch& scratch) {
    return kernels_.AttentionBackward(stream_, AttentionGradient(scratch));
  }

  absl::Status AttentionInputBackward(const Chunk& chunk, const void* x,
                                      const LayerBackwardScratch& scratch, void* dh,
                                      const TileGradient& gradient) {
    void* const dqkv = Rows(scratch.dqkv, chunk, qkv_width_);
    MT_RETURN_IF_ERROR(Rotate(chunk, dqkv, c_.heads + c_.kv_heads, qkv_width_, /*inverse=*/true));
    if (c_.qk_norm) {
      const void* const raw = Rows(a_.qkv, chunk, qkv_width_);
      MT_RETURN_IF_ERROR(HeadNormBackward(chunk, raw, c_.heads, o_.q_norm, QueryRstd(chunk.begin),
                                          dqkv, gradient));
      MT_RETURN_IF_ERROR(HeadNormBackward(chunk, Offset(raw, q_width_), c_.kv_heads, o_.k_norm,
                                          KeyRstd(chunk.begin), Offset(dqkv, q_width_), gradient));
    }
    if (c_.qkv_bias) {
      MT_RETURN_IF_ERROR(kernels_.BiasBackward(stream_, context_.dtype, chunk.tokens, qkv_width_,
                                               dqkv, qkv_width_, gradient.At(o_.qkv_bias),
                                               gradient.add));
    }
    if (!keeps_all_) MT_RETURN_IF_ERROR(InputNorm(chunk, x));
    MT_RETURN_IF_ERROR(LinearWeightGradient(chunk, InputNormed(chunk), c_.hidden, dqkv, qkv_width_,
                                            o_.qkv, gradient));
    MT_RETURN_IF_ERROR(
        LinearInputGradient(chunk, dqkv, qkv_width_, o_.qkv, c_.hidden, InputNormed(chunk)));
    return kernels_.RmsNormBackward(
        stream_, NormBackwardArgs(chunk, Rows(x, chunk, c_.hidden), o_.input_norm,
                                  a_.input_rstd + chunk.begin, InputNormed(chunk),
                                  Rows(dh, chunk, c_.hidden), gradient));
  }

  // --- Kernels over a chunk's rows.

  // y[tokens, out] = x[tokens, in] W^T (+ bias) (+ addend)
  absl::Status Linear(const Chunk& chunk, const void* x, int64_t in, int64_t weight, int64_t out,
                      void* y, int64_t bias = -1, const void* addend = nullptr) {
    MatMulArgs args = Product(chunk.tokens, out, in);
    args.a = x;
    args.a_stride = in;
    args.b = Weight(weight);
    args.b_stride = in;
    args.transpose_b = true;
    args.out = y;
    args.out_stride = out;
    args.bias = bias >= 0 ? Weight(bias) : nullptr;
    args.addend = addend;
    return kernels_.MatMul(stream_, args);
  }

  // dW[out, in] (+)= dy^T x, in FP32
  absl::Status LinearWeightGradient(const Chunk& chunk, const void* x, int64_t in, const void* dy,
                                    int64_t out, int64_t weight, const TileGradient& gradient) {
    MatMulArgs args = Product(out, in, chunk.tokens);
    args.out_dtype = DType::kF32;
    args.a = dy;
    args.a_stride = out;
    args.transpose_a = true;
    args.b = x;
    args.b_stride = in;
    args.out = gradient.At(weight);
    args.out_stride = in;
    args.addend = gradient.add ? args.out : nullptr;
    return kernels_.MatMul(stream_, args);
  }

  // dx[tokens, in] = dy[tokens, out] W
  absl::Status LinearInputGradient(const Chunk& chunk, const void* dy, int64_t out, int64_t weight,
                                   int64_t in, void* dx) {
    MatMulArgs args = Product(chunk.tokens, in, out);
    args.a = dy;
    args.a_stride = out;
    args.b = Weight(weight);
    args.b_stride = in;
    args.out = dx;
    args.out_stride = in;
    return kernels_.MatMul(stream_, args);
  }

  // Arguments for rows of the residual stream.
  RmsNormArgs NormArgs(const Chunk& chunk, const void* x, int64_t weight, void* y,
                       float* rstd) const {
    RmsNormArgs args;
    args.dtype = context_.dtype;
    args.rows = chunk.tokens;
    args.width = c_.hidden;
    args.epsilon = static_cast<float>(c_.norm_epsilon);
    args.x = x;
    args.x_stride = c_.hidden;
    args.weight = Weight(weight);
    args.y = y;
    args.y_stride = c_.hidden;
    args.rstd = rstd;
    return args;
  }

  // Normalises the heads of q or k.
  absl::Status HeadNorm(const Chunk& chunk, const void* x, int64_t heads, int64_t weight, void* y,
                        float* rstd) {
    RmsNormArgs args = NormArgs(chunk, x, weight, y, rstd);
    args.groups = heads;
    args.width = c_.head_dim;
    args.x_stride = qkv_width_;
    args.y_stride = QueryKeyStride();
    return kernels_.RmsNorm(stream_, args);
  }

  // Arguments for dh += gradient of the norm of x by x, for rows of the residual stream.
  RmsNormBackwardArgs NormBackwardArgs(const Chunk& chunk, const void* x, int64_t weight,
                                       const float* rstd, const void* dy, void* dh,
                                       const TileGradient& gradient) const {
    RmsNormBackwardArgs args;
    args.dtype = context_.dtype;
    args.rows = chunk.tokens;
    args.width = c_.hidden;
    args.x = x;
    args.x_stride = c_.hidden;
    args.weight = Weight(weight);
    args.rstd = rstd;
    args.dy = dy;
    args.dy_stride = c_.hidden;
    args.dx = dh;
    args.dx_stride = c_.hidden;
    args.accumulate = true;
    args.dweight = gradient.At(weight);
    args.add_dweight = gradient.add;
    return args;
  }

  // Works in place on dy.
  absl::Status HeadNormBackward(const Chunk& chunk, const void* x, int64_t heads, int64_t weight,
                                const float* rstd, void* dy, const TileGradient& gradient) {
    RmsNormBackwardArgs args = NormBackwardArgs(chunk, x, weight, rstd, dy, dy, gradient);
    args.groups = heads;
    args.width = c_.head_dim;
    args.x_stride = args.dy_stride = args.dx_stride = qkv_width_;
    args.accumulate = false;
    return kernels_.RmsNormBackward(stream_, args);
  }

  absl::Status Rotate(const Chunk& chunk, void* x, int64_t heads, int64_t stride, bool inverse) {
    RopeArgs args;
    args.dtype = context_.dtype;
    args.tokens = chunk.tokens;
    args.heads = heads;
    args.head_dim = c_.head_dim;
    args.x = x;
    args.stride = stride;
    args.positions = batch_.positions + chunk.begin;
    args.cosine = context_.rope_cosine;
    args.sine = context_.rope_sine;
    args.inverse = inverse;
    return kernels_.Rope(stream_, args);
  }

  // Arguments for the whole micro-batch.
  AttentionArgs Attention() const {
    AttentionArgs args;
    args.dtype = context_.dtype;
    args.choice = context_.attention;
    args.tokens = tokens_;
    args.heads = c_.heads;
    args.kv_heads = c_.kv_heads;
    args.head_dim = c_.head_dim;
    args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c_.head_dim)));
    args.document_bounds = batch_.document_bounds;
    args.document_starts = batch_.document_starts;
    args.documents = batch_.documents;
    args.q = Queries();
    args.q_stride = QueryKeyStride();
    args.k = Offset(Queries(), q_width_);
    args.k_stride = QueryKeyStride();
    args.v = Offset(a_.qkv, q_width_ + kv_width_);
    args.v_stride = qkv_width_;
    args.out = a_.attention;
    args.lse = a_.lse;
    return args;
  }

  // --- Where things lie.

  const void* Weight(int64_t offset) const { return Offset(weights_, offset); }
  const void* Offset(const void* base, int64_t elements) const {
    return static_cast<const char*>(base) + elements * DTypeBytes(context_.dtype);
  }
  void* Offset(void* base, int64_t elements) const {
    return static_cast<char*>(base) + elements * DTypeBytes(context_.dtype);
  }

  // The chunk's rows of a tensor of all tokens.
  template <typename Pointer>
  Pointer* Rows(Pointer* tensor, const Chunk& chunk, int64_t width) const {
    return Offset(tensor, chunk.begin * width);
  }
  // The chunk's rows of a tensor that holds all tokens where it is kept, else this chunk alone.
  void* RowsIfKept(void* tensor, bool kept, const Chunk& chunk, int64_t width) const {
    return kept ? Rows(tensor, chunk, width) : tensor;
  }
  void* Middle(const Chunk& chunk) const {
    return RowsIfKept(a_.middle, keeps_products_, chunk, c_.hidden);
  }
  void* GateUpRows(const Chunk& chunk) const {
    return RowsIfKept(a_.gate_up, keeps_products_, chunk, 2 * c_.intermediate);
  }
  void* InputNormed(const Chunk& chunk) const {
    return RowsIfKept(a_.input_normed, keeps_all_, chunk, c_.hidden);
  }
  void* PostNormed(const Chunk& chunk) const {
    return RowsIfKept(a_.post_normed, keeps_all_, chunk, c_.hidden);
  }

  // Where attention reads q and k: rotated in place, or (qk_norm) beside the raw ones.
  void* Queries() const { return c_.qk_norm ? a_.qk_rotated : a_.qkv; }
  int64_t QueryKeyStride() const { return c_.qk_norm ? q_width_ + kv_width_ : qkv_width_; }
  float* QueryRstd(int64_t token) const { return a_.qk_rstd + token * c_.heads; }
  float* KeyRstd(int64_t token) const {
    return a_.qk_rstd + tokens_ * c_.heads + token * c_.kv_heads;
  }

  MatMulArgs Product(int64_t m, int64_t n, int64_t k) const {
    MatMulArgs args;
    args.m = m;
    args.n = n;
    args.k = k;
    args.dtype = args.out_dtype = context_.dtype;
    return args;
  }

  const LayerContext& context_;
  const ModelConfig& c_;
  const LayerOffsets& o_;
  Kernels& kernels_;
  Stream& stream_;
  const char* const weights_;
  const MicroBatchView& batch_;
  const LayerActivations& a_;
  const bool keeps_products_, keeps_all_;
  const int64_t tokens_, q_width_, kv_width_, qkv_width_;
};

}  // namespace

void PrepareDecoderLayer(const LayerContext& context, const MicroBatchView& batch,
                         int64_t workspace_bytes) {
  Stream none;
  LayerContext unqueued = context;
  unqueued.stream = &none;
  // Addresses are reckoned with, not looked at.
  alignas(16) char anywhere = 0;
  LayerActivations activations;
  activations.qkv = activations.qk_rotated = &anywhere;
  LayerBackwardScratch scratch;
  scratch.dqkv = &anywhere;
  scratch.workspace_bytes = workspace_bytes;
  const BoundLayer layer(unqueued, nullptr, batch, activations);
  context.kernels->PrepareAttention(layer.AttentionGradient(scratch));
}

absl::Status DecoderLayerForward(const LayerContext& context, const void* weights,
                                 const MicroBatchView& batch, const void* x,
                                 const LayerActivations& activations, void* y) {
  return BoundLayer(context, weights, batch, activations).Forward(x, y);
}

absl::Status DecoderLayerBackward(const LayerContext& context, const void* weights,
                                  const MicroBatchView& batch, const void* x,
                                  const LayerActivations& activations,
                                  const LayerBackwardScratch& scratch, void* dh, float* gradient,
                                  bool first) {
  return BoundLayer(context, weights, batch, activations).Backward(x, scratch, dh, gradient, first);
}

}  // namespace megatrain

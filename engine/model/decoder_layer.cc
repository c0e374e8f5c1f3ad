#include "engine/model/decoder_layer.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

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
        tokens_(batch.tokens),
        q_width_(c_.heads * c_.head_dim),
        kv_width_(c_.kv_heads * c_.head_dim),
        qkv_width_(q_width_ + 2 * kv_width_) {}

  absl::Status InputNorm(const void* x) {
    return Norm(x, o_.input_norm, a_.input_normed, a_.input_rstd);
  }
  absl::Status PostNorm() { return Norm(a_.middle, o_.post_norm, a_.post_normed, a_.post_rstd); }

  // y[tokens, out] = x[tokens, in] W^T (+ bias) (+ addend)
  absl::Status Linear(const void* x, int64_t in, int64_t weight, int64_t out, void* y,
                      int64_t bias = -1, const void* addend = nullptr) {
    MatMulArgs args = Product(tokens_, out, in);
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

  // dW[out, in] += dy^T x, in FP32
  absl::Status LinearWeightGradient(const void* x, int64_t in, const void* dy, int64_t out,
                                    float* dweight) {
    MatMulArgs args = Product(out, in, tokens_);
    args.out_dtype = DType::kF32;
    args.a = dy;
    args.a_stride = out;
    args.transpose_a = true;
    args.b = x;
    args.b_stride = in;
    args.out = dweight;
    args.out_stride = in;
    args.addend = dweight;
    return kernels_.MatMul(stream_, args);
  }

  // dx[tokens, in] = dy[tokens, out] W
  absl::Status LinearInputGradient(const void* dy, int64_t out, int64_t weight, int64_t in,
                                   void* dx) {
    MatMulArgs args = Product(tokens_, in, out);
    args.a = dy;
    args.a_stride = out;
    args.b = Weight(weight);
    args.b_stride = in;
    args.out = dx;
    args.out_stride = in;
    return kernels_.MatMul(stream_, args);
  }

  // dh += gradient of the norm of x by x.
  absl::Status NormBackward(const void* x, int64_t weight, const float* rstd, const void* dy,
                            void* dh, float* dweight) {
    RmsNormBackwardArgs args;
    args.dtype = context_.dtype;
    args.rows = tokens_;
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
    args.dweight = dweight;
    return kernels_.RmsNormBackward(stream_, args);
  }

  // Where attention reads q and k: rotated in place, or (qk_norm) beside the raw ones.
  void* Queries() const { return c_.qk_norm ? a_.qk_rotated : a_.qkv; }
  void* Keys() const { return Offset(Queries(), q_width_); }
  int64_t QueryKeyStride() const { return c_.qk_norm ? q_width_ + kv_width_ : qkv_width_; }

  // Normalises (Qwen3) and rotates q and k.
  absl::Status PrepareQueriesAndKeys() {
    if (c_.qk_norm) {
      MT_RETURN_IF_ERROR(HeadNorm(a_.qkv, c_.heads, o_.q_norm, Queries(), a_.qk_rstd));
      MT_RETURN_IF_ERROR(HeadNorm(Offset(a_.qkv, q_width_), c_.kv_heads, o_.k_norm, Keys(),
                                  a_.qk_rstd + tokens_ * c_.heads));
    }
    return Rotate(Queries(), c_.heads + c_.kv_heads, QueryKeyStride(), /*inverse=*/false);
  }

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
    args.k = Keys();
    args.k_stride = QueryKeyStride();
    args.v = Offset(a_.qkv, q_width_ + kv_width_);
    args.v_stride = qkv_width_;
    args.out = a_.attention;
    args.lse = a_.lse;
    return args;
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

  absl::Status SwiGlu() {
    SwiGluArgs args;
    args.dtype = context_.dtype;
    args.tokens = tokens_;
    args.width = c_.intermediate;
    args.gate_up = a_.gate_up;
    args.out = a_.activated;
    return kernels_.SwiGlu(stream_, args);
  }

  absl::Status Forward(const void* x, void* y) {
    MT_RETURN_IF_ERROR(InputNorm(x));
    MT_RETURN_IF_ERROR(Linear(a_.input_normed, c_.hidden, o_.qkv, qkv_width_, a_.qkv, o_.qkv_bias));
    MT_RETURN_IF_ERROR(PrepareQueriesAndKeys());
    MT_RETURN_IF_ERROR(kernels_.Attention(stream_, Attention()));
    MT_RETURN_IF_ERROR(Linear(a_.attention, q_width_, o_.o, c_.hidden, a_.middle, -1, x));
    MT_RETURN_IF_ERROR(PostNorm());
    MT_RETURN_IF_ERROR(
        Linear(a_.post_normed, c_.hidden, o_.gate_up, 2 * c_.intermediate, a_.gate_up));
    MT_RETURN_IF_ERROR(SwiGlu());
    if (y == nullptr) return absl::OkStatus();
    return Linear(a_.activated, c_.intermediate, o_.down, c_.hidden, y, -1, a_.middle);
  }

  absl::Status Recompute(const void* x, KeepLevel level) {
    switch (level) {
      case KeepLevel::kEverything:
        return absl::OkStatus();
      case KeepLevel::kNothing:
        return Forward(x, nullptr);
      case KeepLevel::kCheapRecomputed:
        MT_RETURN_IF_ERROR(InputNorm(x));
        // Without QK norm the kept q and k are rotated already.
        if (c_.qk_norm) MT_RETURN_IF_ERROR(PrepareQueriesAndKeys());
        MT_RETURN_IF_ERROR(PostNorm());
        return SwiGlu();
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const void* x, const LayerBackwardScratch& scratch, void* dh, float* g) {
    // MLP. Each input is dead once its weight gradient is summed, so its gradient takes its place.
    MT_RETURN_IF_ERROR(
        LinearWeightGradient(a_.activated, c_.intermediate, dh, c_.hidden, g + o_.down));
    MT_RETURN_IF_ERROR(LinearInputGradient(dh, c_.hidden, o_.down, c_.intermediate, a_.activated));
    SwiGluBackwardArgs swiglu;
    swiglu.dtype = context_.dtype;
    swiglu.tokens = tokens_;
    swiglu.width = c_.intermediate;
    swiglu.gate_up = a_.gate_up;
    swiglu.dout = a_.activated;
    swiglu.dgate_up = a_.gate_up;
    MT_RETURN_IF_ERROR(kernels_.SwiGluBackward(stream_, swiglu));
    MT_RETURN_IF_ERROR(LinearWeightGradient(a_.post_normed, c_.hidden, a_.gate_up,
                                            2 * c_.intermediate, g + o_.gate_up));
    MT_RETURN_IF_ERROR(LinearInputGradient(a_.gate_up, 2 * c_.intermediate, o_.gate_up, c_.hidden,
                                           a_.post_normed));
    MT_RETURN_IF_ERROR(
        NormBackward(a_.middle, o_.post_norm, a_.post_rstd, a_.post_normed, dh, g + o_.post_norm));

    // Attention.
    MT_RETURN_IF_ERROR(LinearWeightGradient(a_.attention, q_width_, dh, c_.hidden, g + o_.o));
    MT_RETURN_IF_ERROR(LinearInputGradient(dh, c_.hidden, o_.o, q_width_, scratch.dattention));
    MT_RETURN_IF_ERROR(kernels_.AttentionBackward(stream_, AttentionGradient(scratch)));
    MT_RETURN_IF_ERROR(Rotate(scratch.dqkv, c_.heads + c_.kv_heads, qkv_width_, /*inverse=*/true));
    if (c_.qk_norm) {
      MT_RETURN_IF_ERROR(
          HeadNormBackward(a_.qkv, c_.heads, o_.q_norm, a_.qk_rstd, scratch.dqkv, g + o_.q_norm));
      MT_RETURN_IF_ERROR(HeadNormBackward(Offset(a_.qkv, q_width_), c_.kv_heads, o_.k_norm,
                                          a_.qk_rstd + tokens_ * c_.heads,
                                          Offset(scratch.dqkv, q_width_), g + o_.k_norm));
    }
    if (c_.qkv_bias) {
      MT_RETURN_IF_ERROR(kernels_.BiasBackward(stream_, context_.dtype, tokens_, qkv_width_,
                                               scratch.dqkv, qkv_width_, g + o_.qkv_bias));
    }
    MT_RETURN_IF_ERROR(
        LinearWeightGradient(a_.input_normed, c_.hidden, scratch.dqkv, qkv_width_, g + o_.qkv));
    MT_RETURN_IF_ERROR(
        LinearInputGradient(scratch.dqkv, qkv_width_, o_.qkv, c_.hidden, a_.input_normed));
    return NormBackward(x, o_.input_norm, a_.input_rstd, a_.input_normed, dh, g + o_.input_norm);
  }

 private:
  const void* Weight(int64_t offset) const {
    return weights_ + offset * DTypeBytes(context_.dtype);
  }
  void* Offset(void* base, int64_t elements) const {
    return static_cast<char*>(base) + elements * DTypeBytes(context_.dtype);
  }

  MatMulArgs Product(int64_t m, int64_t n, int64_t k) const {
    MatMulArgs args;
    args.m = m;
    args.n = n;
    args.k = k;
    args.dtype = args.out_dtype = context_.dtype;
    return args;
  }

  absl::Status Norm(const void* x, int64_t weight, void* y, float* rstd) {
    RmsNormArgs args;
    args.dtype = context_.dtype;
    args.rows = tokens_;
    args.width = c_.hidden;
    args.epsilon = static_cast<float>(c_.norm_epsilon);
    args.x = x;
    args.x_stride = c_.hidden;
    args.weight = Weight(weight);
    args.y = y;
    args.y_stride = c_.hidden;
    args.rstd = rstd;
    return kernels_.RmsNorm(stream_, args);
  }

  absl::Status HeadNorm(const void* x, int64_t heads, int64_t weight, void* y, float* rstd) {
    RmsNormArgs args;
    args.dtype = context_.dtype;
    args.rows = tokens_;
    args.groups = heads;
    args.width = c_.head_dim;
    args.epsilon = static_cast<float>(c_.norm_epsilon);
    args.x = x;
    args.x_stride = qkv_width_;
    args.weight = Weight(weight);
    args.y = y;
    args.y_stride = QueryKeyStride();
    args.rstd = rstd;
    return kernels_.RmsNorm(stream_, args);
  }

  absl::Status HeadNormBackward(const void* x, int64_t heads, int64_t weight, const float* rstd,
                                void* dy, float* dweight) {
    RmsNormBackwardArgs args;
    args.dtype = context_.dtype;
    args.rows = tokens_;
    args.groups = heads;
    args.width = c_.head_dim;
    args.x = x;
    args.x_stride = qkv_width_;
    args.weight = Weight(weight);
    args.rstd = rstd;
    args.dy = args.dx = dy;
    args.dy_stride = args.dx_stride = qkv_width_;
    args.dweight = dweight;
    return kernels_.RmsNormBackward(stream_, args);
  }

  absl::Status Rotate(void* x, int64_t heads, int64_t stride, bool inverse) {
    RopeArgs args;
    args.dtype = context_.dtype;
    args.tokens = tokens_;
    args.heads = heads;
    args.head_dim = c_.head_dim;
    args.x = x;
    args.stride = stride;
    args.positions = batch_.positions;
    args.cosine = context_.rope_cosine;
    args.sine = context_.rope_sine;
    args.inverse = inverse;
    return kernels_.Rope(stream_, args);
  }

  const LayerContext& context_;
  const ModelConfig& c_;
  const LayerOffsets& o_;
  Kernels& kernels_;
  Stream& stream_;
  const char* const weights_;
  const MicroBatchView& batch_;
  const LayerActivations& a_;
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
                                  const MicroBatchView& batch, const void* x, KeepLevel level,
                                  const LayerActivations& activations,
                                  const LayerBackwardScratch& scratch, void* dh, float* gradient) {
  BoundLayer layer(context, weights, batch, activations);
  MT_RETURN_IF_ERROR(layer.Recompute(x, level));
  return layer.Backward(x, scratch, dh, gradient);
}

}  // namespace megatrain

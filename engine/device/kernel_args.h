// The arguments of the kernels. They are plain structs because the device's compiler reads them
// too.
//
// Every matrix is row-major; `*_stride` is the distance between rows in elements. Activations and
// weights have one dtype (BF16 or FP32), written "T" below. Statistics, losses and weight gradients
// are FP32. `void*` points to elements of type T. All pointers are to device memory unless said
// otherwise, and must stay valid until the work on the stream is done. "The gradient by x" is that
// of the loss with respect to x; dx holds it.
#ifndef MEGATRAIN_ENGINE_DEVICE_KERNEL_ARGS_H_
#define MEGATRAIN_ENGINE_DEVICE_KERNEL_ARGS_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/kernel_choices.h"
#include "engine/optim/kernel/adamw_span.h"

namespace megatrain {

// out[m, n] = alpha * op(a)[m, k] * op(b)[k, n] (+ bias[n]) (+ addend[m, n]), accumulated in FP32
// and rounded once.
struct MatMulArgs {
  int64_t m = 0, n = 0, k = 0;    // k > 0
  DType dtype = DType::kF32;      // the type of a, b and bias
  DType out_dtype = DType::kF32;  // the type of out and addend
  const void* a = nullptr;        // [m, k], or [k, m] if transpose_a
  int64_t a_stride = 0;
  bool transpose_a = false;
  const void* b = nullptr;  // [k, n], or [n, k] if transpose_b
  int64_t b_stride = 0;
  bool transpose_b = false;
  void* out = nullptr;  // [m, n]
  int64_t out_stride = 0;
  const void* bias = nullptr;    // [n], or null
  const void* addend = nullptr;  // [m, n] with out_stride, or null; may be `out`
  float alpha = 1;
};

// Computes y = x * rstd * weight (+ addend) with rstd = 1 / sqrt(mean(x^2) + epsilon), over the
// `width` elements of each of a row's `groups` groups, in FP32 and rounded once. QK norm has a
// group for each head, and one weight [width] for all heads. Element (row, group, i) is at row *
// stride + group * width + i. Zhang & Sennrich 2019.
struct RmsNormArgs {
  DType dtype = DType::kF32;
  int64_t rows = 0, groups = 1, width = 0;
  float epsilon = 0;
  const void* x = nullptr;  // [rows, groups, width]
  int64_t x_stride = 0;
  const void* weight = nullptr;  // [width]; null: all are 1
  void* y = nullptr;             // [rows, groups, width]
  int64_t y_stride = 0;
  float* rstd = nullptr;         // [rows, groups], written; may be null
  bool one_plus_weight = false;  // 1 + weight takes the place of weight (Gemma)
  const void* addend = nullptr;  // [rows, width] with y_stride, or null; may be y; for one group
};

// Computes dx, the gradient by x, and dweight, the gradient by weight, unless that is null.
struct RmsNormBackwardArgs {
  DType dtype = DType::kF32;
  int64_t rows = 0, groups = 1, width = 0;
  const void* x = nullptr;  // [rows, groups, width]
  int64_t x_stride = 0;
  const void* weight = nullptr;  // [width], as in RmsNormArgs
  const float* rstd = nullptr;   // [rows, groups]
  const void* dy = nullptr;      // [rows, groups, width]
  int64_t dy_stride = 0;
  void* dx = nullptr;  // [rows, groups, width]; may be dy when `accumulate` is false
  int64_t dx_stride = 0;
  bool accumulate = false;   // adds to dx (the residual stream), in FP32, rounded once
  float* dweight = nullptr;  // [width], FP32; may be null
  bool add_dweight = true;   // false: dweight is overwritten
  bool one_plus_weight = false;
};

// Rotates the first rotary_dim elements of each head in place by position: the pairs (i, i +
// rotary_dim / 2) (the "rotate half" form of HF transformers) or, if `interleaved`, (2 i, 2 i + 1).
// `inverse` rotates back, which gives the gradient. Su et al. 2021.
struct RopeArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;  // even, at most head_dim
  bool interleaved = false;
  void* x = nullptr;  // [tokens, heads, head_dim], head h of token t at t * stride + h * head_dim
  int64_t stride = 0;
  const int32_t* positions = nullptr;  // [tokens]
  const float* cosine = nullptr;       // [largest position + 1, rotary_dim / 2]
  const float* sine = nullptr;         // as cosine
  bool inverse = false;
};

// Copies to(t, h, i) = from(t, h, i) for i < width, where element (t, h, i) is at t * stride + h *
// head_stride + i. So heads can be taken out of wider ones, or put into them. With a
// from_head_stride of 0 all heads get the same elements.
struct CopyHeadsArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, width = 0;
  const void* from = nullptr;  // [tokens, heads, width]
  int64_t from_stride = 0, from_head_stride = 0;
  void* to = nullptr;  // [tokens, heads, width]
  int64_t to_stride = 0, to_head_stride = 0;
};

// Computes out[t, i] = the sum over heads of x(t, h, i), in FP32 in the order of the heads, rounded
// once: the gradient of elements that were copied to all heads.
struct SumHeadsArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, width = 0;
  const void* x = nullptr;  // [tokens, heads, width]
  int64_t x_stride = 0, x_head_stride = 0;
  void* out = nullptr;  // [tokens, width]
  int64_t out_stride = 0;
};

// The changes that some families make to attention's scores s = scale * q.k.
struct AttentionShaping {
  // > 0: a token sees itself and the window - 1 tokens before it, at most. 0: all before it.
  int64_t window = 0;
  // > 0: scores are softcap * tanh(s / softcap), before masking (Gemma 2).
  float softcap = 0;
  // T [heads]: a further score of each head, which takes part in the softmax but has no value
  // (gpt-oss); null: none.
  const void* sinks = nullptr;
};

// Causal attention inside documents. A token sees itself and the earlier tokens of its document.
// Memory is linear in tokens. Dao et al. 2022.
struct AttentionArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, kv_heads = 0;  // kv_heads divides heads
  int64_t head_dim = 0;                         // of queries and keys
  int64_t value_dim = 0;                        // of values; mostly head_dim
  float scale = 0;                              // mostly 1 / sqrt(head_dim)
  AttentionShaping shaping = {};
  AttentionChoice choice = AttentionChoice::kAuto;
  // HOST memory, [documents + 1]. Document d is tokens [starts[d], starts[d + 1]). Documents cover
  // all tokens. engine/data/sequences/document_bounds.h makes them in a run.
  const int32_t* document_starts = nullptr;
  int64_t documents = 0;
  // Device memory, [tokens, 2]: for each token the first token of its document and the one after
  // its last. engine/data/sequences/document_bounds.h makes them in a run.
  const int32_t* document_bounds = nullptr;
  const void* q = nullptr;  // [tokens, heads, head_dim]
  int64_t q_stride = 0;
  const void* k = nullptr;  // [tokens, kv_heads, head_dim]
  int64_t k_stride = 0;
  const void* v = nullptr;  // [tokens, kv_heads, value_dim]
  int64_t v_stride = 0;
  void* out = nullptr;  // [tokens, heads, value_dim], contiguous; read in backward
  // [heads, tokens]: log(sum(exp(score))), the sink's included; read in backward
  float* lse = nullptr;
};

// Computes the gradients by q, k, v and sinks. `forward` has the inputs and results of Attention.
struct AttentionBackwardArgs {
  AttentionArgs forward;
  const void* dout = nullptr;  // [tokens, heads, value_dim], contiguous
  void* dq = nullptr;          // [tokens, heads, head_dim], overwritten
  int64_t dq_stride = 0;
  void* dk = nullptr;  // [tokens, kv_heads, head_dim], overwritten: the sum over the query heads of
                       // the group
  int64_t dk_stride = 0;
  void* dv = nullptr;  // [tokens, kv_heads, value_dim], as dk
  int64_t dv_stride = 0;
  float* dsinks = nullptr;    // [heads], FP32; null if not wanted or if there are no sinks
  bool add_dsinks = true;     // false: dsinks is overwritten
  void* workspace = nullptr;  // KernelSizes::AttentionBackwardWorkspaceBytes
  int64_t workspace_bytes = 0;
};

// Attention over a cache of keys and values, for generation. The cache has a row for each token,
// and the rows of a sequence follow one another. A token with a negative first row belongs to no
// sequence and only fills up the batch.
struct CachedAttentionArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, kv_heads = 0;  // kv_heads divides heads
  int64_t head_dim = 0, value_dim = 0;          // as in AttentionArgs
  float scale = 0;
  AttentionShaping shaping = {};
  const int32_t* first_rows = nullptr;  // [tokens], the row of the first token of its sequence
  const int32_t* positions = nullptr;   // [tokens], in its sequence, from 0
  const void* q = nullptr;              // [tokens, heads, head_dim]
  int64_t q_stride = 0;
  const void* k = nullptr;  // [tokens, kv_heads, head_dim]
  int64_t k_stride = 0;
  const void* v = nullptr;  // [tokens, kv_heads, value_dim]
  int64_t v_stride = 0;
  void* cache = nullptr;  // [rows]: keys [kv_heads, head_dim], then values [kv_heads, value_dim]
  void* out = nullptr;    // [tokens, heads, value_dim], contiguous

  int64_t cache_row() const { return kv_heads * (head_dim + value_dim); }  // elements
};

// A matrix whose rows are `stride` elements apart.
struct Matrix {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  int64_t stride = 0;
};

// y = a (+ b), added in FP32 and rounded once. y may be a or b.
struct AddArgs {
  int64_t rows = 0, width = 0;
  Matrix a;
  Matrix b;  // its data is null if there is none
  DType y_dtype = DType::kF32;
  void* y = nullptr;
  int64_t y_stride = 0;
};

enum class GluActivation {
  kSilu,      // silu(gate) * up
  kGeluTanh,  // gelu(gate) * up, with the tanh approximation of GELU
  // gate' * sigmoid(slope * gate') * (up' + 1), with gate' = min(gate, limit) and up' = clamp(up,
  // -limit, limit) (gpt-oss)
  kClampedSilu,
};

// A gated linear unit: out = activation(gate) * up, in FP32 and rounded once. Shazeer 2020.
struct GluArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, width = 0;
  const void* gate_up = nullptr;  // [tokens, 2, width]: gate, then up
  void* out = nullptr;            // [tokens, width]
  GluActivation activation = GluActivation::kSilu;
  float limit = 0, slope = 0;  // for kClampedSilu
  bool interleaved = false;    // gate_up is [tokens, width, 2]: gate and up in turn
};

// Computes dgate_up. The gradient by a clamped operand is 0 where it was clamped, and passes where
// it equals the limit.
struct GluBackwardArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, width = 0;
  const void* gate_up = nullptr;  // [tokens, 2, width]
  // [tokens, width]. It is overwritten by the unit's output, with the same bits as Glu gives,
  // because the backward pass needs that next and it costs only one more write here.
  void* dout = nullptr;
  void* dgate_up = nullptr;  // [tokens, 2, width]; may be gate_up
  GluActivation activation = GluActivation::kSilu;
  float limit = 0, slope = 0;  // for kClampedSilu
  bool interleaved = false;    // as in GluArgs; dgate_up's too
};

// The gate of gated attention (Qwen3-Next): out = x * sigmoid(gate). The gate of head h of token t
// begins at t * gate_stride + h * gate_head_stride, because a fused projection lays [q | gate] side
// by side for each head.
struct SigmoidGateArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, head_dim = 0;
  const void* x = nullptr;     // [tokens, heads, head_dim], contiguous
  const void* gate = nullptr;  // [tokens, heads, head_dim]
  int64_t gate_stride = 0, gate_head_stride = 0;
  void* out = nullptr;  // [tokens, heads, head_dim], contiguous; may be x
};

// Computes dx = dout * sigmoid(gate) and dgate = dout * x * sigmoid(gate) * (1 - sigmoid(gate)).
// `forward` has the inputs; its `out` is not used.
struct SigmoidGateBackwardArgs {
  SigmoidGateArgs forward;
  // [tokens, heads, head_dim], contiguous. It is overwritten by the gate's output, with the same
  // bits as SigmoidGate gives, because the gradient of the next projection's weight needs that.
  void* dout = nullptr;
  void* dx = nullptr;     // [tokens, heads, head_dim], contiguous; may be x
  void* dgate = nullptr;  // [tokens, heads, head_dim]; may be gate
  int64_t dgate_stride = 0, dgate_head_stride = 0;
};

// out[t] = scale * table[ids[t]]
struct EmbeddingArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, hidden = 0, vocabulary = 0;
  const int32_t* ids = nullptr;  // [tokens], each in [0, vocabulary)
  const void* table = nullptr;   // [vocabulary, hidden]
  void* out = nullptr;           // [tokens, hidden]
  float scale = 1;               // a factor of every row
};

// dtable[id] (+)= scale * the sum of dout's rows of this id
struct EmbeddingBackwardArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, hidden = 0, vocabulary = 0;
  const int32_t* ids = nullptr;  // [tokens]
  // The token positions sorted by (id, position), [tokens]. They are made on the host with the
  // batch, so that the sum for each id has one order and needs no atomics.
  const int32_t* sorted_positions = nullptr;
  const void* dout = nullptr;  // [tokens, hidden]
  float* dtable = nullptr;     // [vocabulary, hidden], FP32
  // If false, dtable is overwritten, with zeros in the rows of ids that do not occur.
  bool add = true;
  float scale = 1;          // a factor of every row's gradient
  int64_t padding_id = -1;  // an id whose row gets no gradient, as torch's padding_idx; -1: none
};

// Computes for each row, with l = logits or, with a softcap c (Gemma 2), l = c * tanh(logits / c):
//   loss = logsumexp(l) - l[label]
//   dlogits = (softmax(l) - onehot(label)) * scale * weight * dl
// where dl = 1 or, with a softcap, 1 - (l / c)^2. Rows with label < 0 have loss 0 and zero dlogits.
//
// dlogits, the gradient by the logits, is of type T and overwrites them. Row r of dlogits starts at
// the first byte of row r of the logits, so its stride in elements of T is logits_stride * 4 /
// sizeof(T).
struct CrossEntropyArgs {
  DType dtype = DType::kF32;  // the type of dlogits
  int64_t tokens = 0, vocabulary = 0;
  float* logits = nullptr;  // [tokens, vocabulary], FP32; overwritten by dlogits unless `loss_only`
  int64_t logits_stride = 0;
  const int32_t* labels = nullptr;  // [tokens], already shifted; < 0: masked
  // 1 / unmasked tokens of the step; 1 if `weights` are those of PreferenceLossArgs, which hold it.
  float scale = 0;
  // [tokens], the weight of each row; null: all are 1.
  const float* weights = nullptr;
  bool loss_only = false;   // evaluation: logits are left undefined
  float* losses = nullptr;  // [tokens], each row's loss, 0 where masked
  float softcap = 0;        // 0: none
};

// A pair's results, in PreferenceLossArgs::results.
struct PreferenceResult {
  double chosen_logp = 0, rejected_logp = 0;  // sums over the answers' tokens
  double loss = 0;
};

// Computes the loss of pairs of answers to the same prompt (preference_term.h) from the losses of
// their tokens, and the weights with which CrossEntropyArgs gives its gradient. Sums are FP64, in
// an order that depends on the lengths of the answers alone.
struct PreferenceLossArgs {
  PreferenceObjective objective;
  int64_t pairs = 0;
  // [pairs, 4]: the first token of the chosen answer's document and the one after its last, then
  // those of the rejected answer's. An answer consists of its document's tokens that have a label.
  const int32_t* bounds = nullptr;
  const int32_t* labels = nullptr;    // [tokens], as in CrossEntropyArgs
  const float* losses = nullptr;      // [tokens], of CrossEntropyArgs
  const double* reference = nullptr;  // [pairs, 2]: the reference's log-probabilities, chosen first
  double scale = 0;                   // 1 / pairs of the step
  PreferenceResult* results = nullptr;  // [pairs]
  float* weights = nullptr;  // [tokens], written for the documents' tokens; null: not wanted
};

// AdamW over a run of elements (engine/optim/adamw.h). All pointers of `span` are to device memory.
struct AdamWArgs {
  AdamWConstants constants;
  bool decays = false;  // true: the masters are multiplied by constants.decay
  DType gradient_dtype = DType::kF32;
  AdamWSpan span;
  int32_t* untrusted = nullptr;  // set to 1 if AdamWUpdateSpan would return false, else unchanged
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_KERNEL_ARGS_H_

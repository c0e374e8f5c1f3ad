// The arguments of the kernels (kernels.h). They are plain structs because the device's compiler
// reads them too.
//
// Every matrix is row-major. `*_stride` is the distance between rows in elements; an array without
// one is contiguous. Activations and weights have one dtype (BF16 or FP32), written "T" below.
// Statistics, losses and weight gradients are FP32. `void*` points to elements of type T. All
// pointers are to device memory unless said otherwise, and that memory must stay valid until the
// work on the stream is done. Results must not overlap operands unless a comment allows it. "The
// gradient by x" is the gradient of the loss with respect to x, and dx holds it. "Rounded once"
// means that only the result is rounded to its type.
#ifndef MEGATRAIN_ENGINE_DEVICE_KERNEL_ARGS_H_
#define MEGATRAIN_ENGINE_DEVICE_KERNEL_ARGS_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/kernel_choices.h"
#include "engine/optim/kernel/adamw_span.h"

namespace megatrain {

// Computes out[m, n] = alpha * op(a)[m, k] * op(b)[k, n] (+ bias[n]) (+ addend[m, n]), accumulated
// in FP32 and rounded once. A GPU's library may round a product once more before it adds the bias.
// Nothing is done if m or n is 0. Otherwise a k of 0 gives InvalidArgument.
struct MatMulArgs {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;      // the type of a, b and bias
  DType out_dtype = DType::kF32;  // the type of out and addend: `dtype` or FP32
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

// Computes RMSNorm (Zhang & Sennrich 2019): y = x * rstd * weight (+ addend) with rstd = 1 /
// sqrt(mean(x^2) + epsilon), in FP32 and rounded once. A row has `groups` groups of `width`
// elements, and the mean is that of a group. QK norm has a group for each head, and one weight
// [width] for all heads. Element (row, group, i) is at row * stride + group * width + i.
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
  const void* addend = nullptr;  // [rows, width] with y_stride, or null; may be y; needs groups = 1
};

// Computes the gradients of RmsNorm: dx by x, and dweight by weight unless dweight is null.
struct RmsNormBackwardArgs {
  DType dtype = DType::kF32;
  int64_t rows = 0, groups = 1, width = 0;
  const void* x = nullptr;  // [rows, groups, width]
  int64_t x_stride = 0;
  const void* weight = nullptr;  // [width], as in RmsNormArgs
  const float* rstd = nullptr;   // [rows, groups], from RmsNorm
  const void* dy = nullptr;      // [rows, groups, width]
  int64_t dy_stride = 0;
  void* dx = nullptr;  // [rows, groups, width]; may be dy when `accumulate` is false
  int64_t dx_stride = 0;
  bool accumulate = false;       // adds to dx (the residual stream), in FP32, rounded once
  float* dweight = nullptr;      // [width], FP32; may be null
  bool add_dweight = true;       // true: adds to dweight; false: overwrites it
  bool one_plus_weight = false;  // as in RmsNormArgs
};

// Applies rotary position embedding (Su et al. 2021): rotates the first rotary_dim elements of each
// head in place, by pairs. Pair i has elements i and i + rotary_dim / 2 (the "rotate half" form of
// HF transformers) or, if `interleaved`, 2 i and 2 i + 1. With c = cosine[p, i] and s = sine[p, i],
// where p is the token's position, the pair (a, b) becomes (a * c - b * s, b * c + a * s).
// `inverse` takes -s for s, which turns the gradient by the result into the gradient by x.
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
// head_stride + i. This takes heads out of wider ones, or puts them into wider ones. With a
// from_head_stride of 0 all heads get the same elements.
struct CopyHeadsArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, width = 0;
  const void* from = nullptr;  // [tokens, heads, width]
  int64_t from_stride = 0, from_head_stride = 0;
  void* to = nullptr;  // [tokens, heads, width]
  int64_t to_stride = 0, to_head_stride = 0;
};

// Computes out[t, i] = the sum over heads h of x(t, h, i), in FP32 in the order of the heads, and
// rounded once. This is the gradient by elements that were copied to all heads. Element (t, h, i)
// is at t * x_stride + h * x_head_stride + i.
struct SumHeadsArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, width = 0;
  const void* x = nullptr;  // [tokens, heads, width]
  int64_t x_stride = 0, x_head_stride = 0;
  void* out = nullptr;  // [tokens, width]
  int64_t out_stride = 0;
};

// The changes that some families of models make to attention's scores s = scale * q.k.
struct AttentionShaping {
  // > 0: a token sees itself and at most the window - 1 tokens before it. 0: it sees all before it.
  int64_t window = 0;
  // > 0: scores are softcap * tanh(s / softcap), before masking (Gemma 2).
  float softcap = 0;
  // T [heads]: a further score of each head, which takes part in the softmax but has no value
  // (gpt-oss); null: none.
  const void* sinks = nullptr;
};

// Computes causal attention inside documents. A token sees itself and the earlier tokens of its
// document. Each group of heads / kv_heads adjacent query heads shares a head of keys and values.
// Memory is linear in tokens (Dao et al. 2022). Both document_starts and document_bounds must be
// given, because different kernels read them.
struct AttentionArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, kv_heads = 0;  // kv_heads divides heads
  int64_t head_dim = 0;                         // of queries and keys
  int64_t value_dim = 0;                        // of values; mostly head_dim
  float scale = 0;                              // mostly 1 / sqrt(head_dim)
  AttentionShaping shaping = {};
  AttentionChoice choice = AttentionChoice::kAuto;
  // HOST memory, [documents + 1], read during the call only. Document d is tokens [starts[d],
  // starts[d + 1]). Documents cover all tokens. document_bounds.h (engine/data/sequences) makes
  // these starts in a run.
  const int32_t* document_starts = nullptr;
  int64_t documents = 0;
  // Device memory, [tokens, 2]: for each token the first token of its document and the one after
  // its last. document_bounds.h makes these too.
  const int32_t* document_bounds = nullptr;
  const void* q = nullptr;  // [tokens, heads, head_dim]
  int64_t q_stride = 0;
  const void* k = nullptr;  // [tokens, kv_heads, head_dim]
  int64_t k_stride = 0;
  const void* v = nullptr;  // [tokens, kv_heads, value_dim]
  int64_t v_stride = 0;
  void* out = nullptr;  // [tokens, heads, value_dim], contiguous; read in backward
  // [heads, tokens]: log(sum(exp(score))) over a token's keys and the sink; read in backward
  float* lse = nullptr;
};

// Computes the gradients by q, k, v and sinks. `forward` has the inputs and results of Attention.
// The device's own kernels do not check the size of the workspace. cuDNN uses as much of it as is
// useful.
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
  bool add_dsinks = true;     // true: adds to dsinks; false: overwrites it
  void* workspace = nullptr;  // of at least KernelSizes::AttentionBackwardWorkspaceBytes
  int64_t workspace_bytes = 0;
};

// The arguments of StoreInCache and CachedAttention (kernels.h), which compute attention over a
// cache of keys and values, for generation. The cache has a row for each token, and the rows of a
// sequence follow one another. A token with a negative first row belongs to no sequence and only
// fills up the batch.
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
  // T [rows, cache_row()]: each row has keys [kv_heads, head_dim], then values [kv_heads,
  // value_dim]
  void* cache = nullptr;
  void* out = nullptr;  // [tokens, heads, value_dim], contiguous

  // Returns the elements of a row of the cache.
  int64_t cache_row() const { return kv_heads * (head_dim + value_dim); }
};

// A matrix whose rows are `stride` elements apart.
struct Matrix {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  int64_t stride = 0;
};

// Computes y = a (+ b) for matrices [rows, width], added in FP32 and rounded once. y may be the
// memory of a or b if it has the same dtype and stride.
struct AddArgs {
  int64_t rows = 0, width = 0;
  Matrix a;
  Matrix b;  // b.data is null if there is no b
  DType y_dtype = DType::kF32;
  void* y = nullptr;
  int64_t y_stride = 0;
};

// The output of a gated linear unit, from an element `gate` and an element `up`.
enum class GluActivation {
  kSilu,      // silu(gate) * up
  kGeluTanh,  // gelu(gate) * up, with the tanh approximation of GELU
  // gate' * sigmoid(slope * gate') * (up' + 1), with gate' = min(gate, limit) and up' = clamp(up,
  // -limit, limit) (gpt-oss)
  kClampedSilu,
};

// Computes a gated linear unit (Shazeer 2020): out is the formula of GluActivation, in FP32 and
// rounded once.
struct GluArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, width = 0;
  const void* gate_up = nullptr;  // [tokens, 2, width]: gate, then up
  void* out = nullptr;            // [tokens, width]
  GluActivation activation = GluActivation::kSilu;
  float limit = 0, slope = 0;  // for kClampedSilu
  bool interleaved = false;    // gate_up is [tokens, width, 2]: gate and up in turn
};

// Computes dgate_up, the gradient by gate_up. With kClampedSilu the gradient by an operand is 0
// where the operand lies beyond its limit, but not where it equals the limit.
struct GluBackwardArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, width = 0;
  const void* gate_up = nullptr;  // [tokens, 2, width]
  // [tokens, width], the gradient by `out`. It is overwritten by the unit's output, with the same
  // bits as Glu gives, because the backward pass needs the output next and only one more write is
  // needed here.
  void* dout = nullptr;
  void* dgate_up = nullptr;  // as gate_up; may be gate_up
  GluActivation activation = GluActivation::kSilu;
  float limit = 0, slope = 0;  // for kClampedSilu
  bool interleaved = false;    // as in GluArgs, for gate_up and dgate_up
};

// Computes the gate of gated attention (Qwen3-Next): out = x * sigmoid(gate), in FP32 and rounded
// once. The gate of head h of token t begins at t * gate_stride + h * gate_head_stride, because a
// fused projection puts [q | gate] side by side for each head.
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
  // bits as SigmoidGate gives, because the gradient by the next projection's weight needs that.
  void* dout = nullptr;
  void* dx = nullptr;     // [tokens, heads, head_dim], contiguous; may be x
  void* dgate = nullptr;  // [tokens, heads, head_dim]; may be gate with the same strides
  int64_t dgate_stride = 0, dgate_head_stride = 0;
};

// Computes out[t] = scale * table[ids[t]] for each token t, rounded once.
struct EmbeddingArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, hidden = 0, vocabulary = 0;
  const int32_t* ids = nullptr;  // [tokens], each in [0, vocabulary)
  const void* table = nullptr;   // [vocabulary, hidden]
  void* out = nullptr;           // [tokens, hidden]
  float scale = 1;               // a factor of every row
};

// Computes dtable[id] (+)= scale * the sum of dout[t] over the tokens t with ids[t] = id, in FP32.
struct EmbeddingBackwardArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, hidden = 0, vocabulary = 0;
  const int32_t* ids = nullptr;  // [tokens], each in [0, vocabulary)
  // [tokens]: the tokens 0 to tokens - 1 sorted by (id, token). The host sorts them when it makes
  // the batch, so that the sum for each id has one order and needs no atomics.
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
  float* logits = nullptr;  // [tokens, vocabulary], FP32; overwritten
  int64_t logits_stride = 0;
  // [tokens], less than `vocabulary`: the token that each row predicts; < 0: masked
  const int32_t* labels = nullptr;
  // 1 / unmasked tokens of the step. It is 1 if `weights` are those of PreferenceLossArgs, which
  // contain such a scale already.
  float scale = 0;
  // [tokens], the weight of each row; null: all are 1.
  const float* weights = nullptr;
  bool loss_only = false;   // for evaluation: dlogits are not computed, logits become undefined
  float* losses = nullptr;  // [tokens], each row's loss, 0 where masked
  float softcap = 0;        // 0: none
};

// A pair's results, in PreferenceLossArgs::results.
struct PreferenceResult {
  double chosen_logp = 0, rejected_logp = 0;  // log-probabilities: sums over an answer's tokens
  double loss = 0;
};

// Computes the loss of pairs of answers to the same prompt (preference_term.h) from the losses of
// their tokens. Also computes the weights with which CrossEntropy gives the gradient of that loss.
// Sums are FP64, in an order that depends on the lengths of the answers alone. REQUIRES: as
// PreferenceTermOf (preference_term.h); with ipo each answer thus has a token with a label.
struct PreferenceLossArgs {
  PreferenceObjective objective;
  int64_t pairs = 0;
  // [pairs, 4]: the first token of the chosen answer's document and the one after its last, then
  // those of the rejected answer's. An answer consists of its document's tokens that have a label.
  const int32_t* bounds = nullptr;
  const int32_t* labels = nullptr;  // [tokens], as in CrossEntropyArgs
  const float* losses = nullptr;    // [tokens], of CrossEntropyArgs
  // [pairs, 2]: the log-probabilities that the reference model gives, the chosen answer's first
  const double* reference = nullptr;
  double scale = 0;                     // 1 / pairs of the step
  PreferenceResult* results = nullptr;  // [pairs]
  float* weights = nullptr;  // [tokens], written for the documents' tokens; null: not wanted
};

// Updates a run of elements by AdamW (engine/optim/adamw.h). All pointers of `span` are to device
// memory.
struct AdamWArgs {
  AdamWConstants constants;
  bool decays = false;  // true: the masters are first multiplied by constants.decay
  DType gradient_dtype = DType::kF32;
  AdamWSpan span;
  // Set to 1 if AdamWUpdateSpan (adamw_kernel.h) would return false, else unchanged.
  int32_t* untrusted = nullptr;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_KERNEL_ARGS_H_

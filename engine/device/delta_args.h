// The arguments of the kernels for the gated delta net, a linear attention whose memory is a state
// of one size per head (Yang et al. 2024, "Gated Delta Networks"; Qwen3-Next, Qwen3.5). The
// conventions are those of kernel_args.h. Documents are given as in AttentionArgs, and nothing
// passes from one to the next. Sums and chunks begin at a document's start, so that the bits of a
// document's outputs do not depend on what it is packed with.
//
// A state is what a sequence's later tokens need of its earlier ones. Only generation passes states
// between calls. A document begins with the state in its row of `initial_states`. The state after
// its last token is written to the same row of `final_states`, which may be the same memory.
// Training leaves both null.
#ifndef MEGATRAIN_ENGINE_DEVICE_DELTA_ARGS_H_
#define MEGATRAIN_ENGINE_DEVICE_DELTA_ARGS_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

// The documents of a micro-batch, and the states that belong to them.
struct DeltaDocuments {
  int64_t tokens = 0;
  int64_t documents = 0;
  const int32_t* starts = nullptr;  // HOST memory, AttentionArgs::document_starts
  const int32_t* bounds = nullptr;  // [tokens, 2], AttentionArgs::document_bounds
  // [tokens]: for each token the row of its sequence's state. All tokens of a document have the
  // same row. No two documents have the same row unless it is negative. A document with a negative
  // row begins with zeros, and its state is not written. If null, this holds for all documents.
  // REQUIRES: no document is empty unless this is null.
  const int32_t* state_rows = nullptr;
};

// Computes a depthwise causal convolution over time, then SiLU: y[t, c] = silu(sum over j < kernel
// of weight[c, j] * x[t - (kernel - 1) + j, c]), in FP32 and rounded once. Before a document's
// start x is 0 or, with an initial state, the inputs that this state holds.
struct CausalConvArgs {
  DType dtype = DType::kF32;
  DeltaDocuments documents = {};
  int64_t channels = 0;
  int64_t kernel = 0;       // the number of inputs of an output, 2 to kCausalConvKernelMax
  const void* x = nullptr;  // T [tokens, channels]
  int64_t x_stride = 0;
  const void* weight = nullptr;  // T [channels, kernel]; the last is the token's own
  void* y = nullptr;             // T [tokens, channels]
  int64_t y_stride = 0;
  // T [rows, kernel - 1, channels]: the inputs before a document's first token, the oldest first.
  // Null: zeros.
  const void* initial_states = nullptr;
  void* final_states = nullptr;  // as initial_states; null: not wanted
};
// The largest CausalConvArgs::kernel.
inline constexpr int64_t kCausalConvKernelMax = 8;

// Computes dx and dweight, the gradients by x and weight. `forward` has the inputs. Its y and
// states are not used, because the convolution is computed again and x before a document's start is
// 0.
struct CausalConvBackwardArgs {
  CausalConvArgs forward;
  const void* dy = nullptr;  // T [tokens, channels]
  int64_t dy_stride = 0;
  void* dx = nullptr;  // T [tokens, channels], overwritten; not the memory of dy
  int64_t dx_stride = 0;
  float* dweight = nullptr;  // [channels, kernel], FP32; may be null
  bool add_dweight = true;   // true: adds to dweight; false: overwrites it
};

// Computes the gated delta rule. A value head h has the key head h / (value_heads / key_heads) and
// a state S [key_dim, value_dim]. S is 0 before a document's first token unless the document has an
// initial state. For each token in turn:
//   q^ = q / sqrt(sum q^2 + 1e-6) / sqrt(key_dim), k^ = k / sqrt(sum k^2 + 1e-6)
//   decay = exp(-exp(A_log) * softplus(a + dt_bias)), beta = sigmoid(b)
//   S *= decay;  u = beta * (v - S^T k^);  S += k^ u^T;  out = S^T q^
// Everything is FP32, and `out` is rounded once. (HF transformers rounds beta to T.)
struct GatedDeltaArgs {
  DType dtype = DType::kF32;
  DeltaDocuments documents = {};
  int64_t key_heads = 0, value_heads = 0;  // key_heads divides value_heads
  // key_dim is at most KernelSizes::DeltaKeyDimMax; else both directions return InvalidArgument.
  int64_t key_dim = 0, value_dim = 0;
  const void* q = nullptr;  // T [tokens, key_heads, key_dim]
  int64_t q_stride = 0;
  const void* k = nullptr;  // T [tokens, key_heads, key_dim]
  int64_t k_stride = 0;
  const void* v = nullptr;  // T [tokens, value_heads, value_dim]
  int64_t v_stride = 0;
  const void* a = nullptr;  // T [tokens, value_heads], the input of decay
  int64_t a_stride = 0;
  const void* b = nullptr;  // T [tokens, value_heads], the input of beta
  int64_t b_stride = 0;
  const void* a_log = nullptr;    // T [value_heads], A_log
  const void* dt_bias = nullptr;  // T [value_heads]
  void* out = nullptr;            // T [tokens, value_heads, value_dim], contiguous
  // FP32 [rows, value_heads, key_dim, value_dim]; null: zeros.
  const float* initial_states = nullptr;
  float* final_states = nullptr;  // as initial_states; null: not wanted
};

// The tokens of a chunk, into which a document is cut from its start. The backward pass keeps the
// states at the starts of chunks.
inline constexpr int64_t kDeltaChunk = 64;

// Computes the gradients of GatedDelta. `forward` has the inputs. Its `out` and states are not
// used, and S is 0 before each document. dq, dk, dv, da and db are overwritten. dq and dk are sums
// over the value heads of a key head. Returns InvalidArgument (cpu) or Internal (GPU) if the
// workspace is too small.
struct GatedDeltaBackwardArgs {
  GatedDeltaArgs forward;
  const void* dout = nullptr;  // T [tokens, value_heads, value_dim], contiguous
  void* dq = nullptr;          // T [tokens, key_heads, key_dim]
  int64_t dq_stride = 0;
  void* dk = nullptr;  // T [tokens, key_heads, key_dim]
  int64_t dk_stride = 0;
  void* dv = nullptr;  // T [tokens, value_heads, value_dim]
  int64_t dv_stride = 0;
  void* da = nullptr;  // T [tokens, value_heads]
  int64_t da_stride = 0;
  void* db = nullptr;  // T [tokens, value_heads]
  int64_t db_stride = 0;
  float* da_log = nullptr;     // [value_heads], FP32; may be null
  float* ddt_bias = nullptr;   // [value_heads], FP32; may be null
  bool add_parameters = true;  // true: adds to da_log and ddt_bias; false: overwrites them
  void* workspace = nullptr;   // of at least KernelSizes::GatedDeltaBackwardWorkspaceBytes
  int64_t workspace_bytes = 0;
};

// Computes the norm of the delta net's output, and its gate: out = x * rstd * weight * silu(gate),
// with rstd = 1 / sqrt(mean(x^2) + epsilon) over a head, in FP32 and rounded once. (HF transformers
// also rounds x * rstd and its product with the weight to T.)
struct GatedNormArgs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, head_dim = 0;
  float epsilon = 0;
  const void* x = nullptr;       // T [tokens, heads, head_dim], contiguous
  const void* weight = nullptr;  // T [head_dim], of all heads
  const void* gate = nullptr;    // T [tokens, heads, head_dim]
  int64_t gate_stride = 0;
  void* out = nullptr;  // T [tokens, heads, head_dim], contiguous; may be x
};

// Computes the gradients of GatedNorm: dx, dgate and dweight. `forward` has the inputs. Its `out`
// is not used.
struct GatedNormBackwardArgs {
  GatedNormArgs forward;
  // T [tokens, heads, head_dim], contiguous. It is overwritten by the norm's output, with the same
  // bits as GatedNorm gives, because the gradient by the next projection's weight needs that.
  void* dout = nullptr;
  void* dx = nullptr;     // T [tokens, heads, head_dim], contiguous; may be x
  void* dgate = nullptr;  // T [tokens, heads, head_dim]; may be gate with the same stride
  int64_t dgate_stride = 0;
  float* dweight = nullptr;  // [head_dim], FP32; may be null
  bool add_dweight = true;   // true: adds to dweight; false: overwrites it
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_DELTA_ARGS_H_

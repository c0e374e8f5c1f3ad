// The arguments of the kernels for the gated delta net, a linear attention whose memory is a state
// of one size per head (Yang et al. 2024, "Gated Delta Networks"; Qwen3-Next, Qwen3.5). The
// conventions are those of kernel_args.h. Documents are given as in AttentionArgs, and nothing
// passes from one to the next. Rows, sums and chunks are counted from a document's start, so that
// a document's bits do not depend on what it is packed with.
//
// States are for generation: what a sequence's later tokens take from its earlier ones. A document
// begins with the state of its row in `initial_states`, and its last state is written to the same
// row of `final_states`, which may be the same memory. Training has neither.
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
  // [tokens]: the row of the state of a token's sequence. All tokens of a document have one row,
  // and no two documents have the same. Negative: the document begins with zeros, and no state is
  // written. Null: there are no states.
  const int32_t* state_rows = nullptr;
};

// A depthwise causal convolution over time, then SiLU: y[t, c] = silu(sum_j weight[c, j] *
// x[t - (kernel - 1) + j, c]), in FP32 and rounded once. Before a document's start x is 0, or the
// last inputs of its initial state.
struct CausalConvArgs {
  DType dtype = DType::kF32;
  DeltaDocuments documents = {};
  int64_t channels = 0;
  int64_t kernel = 0;       // 2 to kCausalConvKernelMax
  const void* x = nullptr;  // T [tokens, channels]
  int64_t x_stride = 0;
  const void* weight = nullptr;  // T [channels, kernel]; the last is the token's own
  void* y = nullptr;             // T [tokens, channels]
  int64_t y_stride = 0;
  // T [rows, kernel - 1, channels]: the last inputs before a document's first, the oldest first;
  // null: zeros.
  const void* initial_states = nullptr;
  void* final_states = nullptr;  // as initial_states; null: not wanted
};
inline constexpr int64_t kCausalConvKernelMax = 8;

// Computes dx and dweight. The convolution is computed again. `forward` has the inputs; y and
// states are not used.
struct CausalConvBackwardArgs {
  CausalConvArgs forward;
  const void* dy = nullptr;  // T [tokens, channels]
  int64_t dy_stride = 0;
  void* dx = nullptr;  // T [tokens, channels], overwritten; not the memory of dy
  int64_t dx_stride = 0;
  float* dweight = nullptr;  // [channels, kernel], FP32; may be null
  bool add_dweight = true;   // false: dweight is overwritten
};

// The gated delta rule. For a value head h, with its key head h / (value_heads / key_heads) and a
// state S [key_dim, value_dim] that is 0 before a document's first token:
//   q^ = q / sqrt(sum q^2 + 1e-6) / sqrt(key_dim), k^ = k / sqrt(sum k^2 + 1e-6)
//   decay = exp(-exp(A_log) * softplus(a + dt_bias)), beta = sigmoid(b)
//   S *= decay;  u = beta * (v - S^T k^);  S += k^ u^T;  out = S^T q^
// Everything is FP32, beta too (transformers rounds it to T), and `out` is rounded once.
struct GatedDeltaArgs {
  DType dtype = DType::kF32;
  DeltaDocuments documents = {};
  int64_t key_heads = 0, value_heads = 0;  // key_heads divides value_heads
  int64_t key_dim = 0, value_dim = 0;
  const void* q = nullptr;  // T [tokens, key_heads, key_dim]
  int64_t q_stride = 0;
  const void* k = nullptr;  // T [tokens, key_heads, key_dim]
  int64_t k_stride = 0;
  const void* v = nullptr;  // T [tokens, value_heads, value_dim]
  int64_t v_stride = 0;
  const void* a = nullptr;  // T [tokens, value_heads]
  int64_t a_stride = 0;
  const void* b = nullptr;  // T [tokens, value_heads]
  int64_t b_stride = 0;
  const void* a_log = nullptr;    // T [value_heads]
  const void* dt_bias = nullptr;  // T [value_heads]
  void* out = nullptr;            // T [tokens, value_heads, value_dim], contiguous
  // FP32 [rows, value_heads, key_dim, value_dim]; null: zeros.
  const float* initial_states = nullptr;
  float* final_states = nullptr;  // as initial_states; null: not wanted
};

// The tokens of a chunk. The backward pass keeps the states at the starts of chunks.
inline constexpr int64_t kDeltaChunk = 64;

// `forward` has the inputs; `out` and states are not used. dq, dk and dv are overwritten. dq and dk
// are sums over the value heads of a key head.
struct GatedDeltaBackwardArgs {
  GatedDeltaArgs forward;
  const void* dout = nullptr;  // T [tokens, value_heads, value_dim], contiguous
  void* dq = nullptr;          // T [tokens, key_heads, key_dim]
  int64_t dq_stride = 0;
  void* dk = nullptr;  // T [tokens, key_heads, key_dim]
  int64_t dk_stride = 0;
  void* dv = nullptr;  // T [tokens, value_heads, value_dim]
  int64_t dv_stride = 0;
  void* da = nullptr;  // T [tokens, value_heads], overwritten
  int64_t da_stride = 0;
  void* db = nullptr;  // T [tokens, value_heads], overwritten
  int64_t db_stride = 0;
  float* da_log = nullptr;     // [value_heads], FP32; may be null
  float* ddt_bias = nullptr;   // [value_heads], FP32; may be null
  bool add_parameters = true;  // false: da_log and ddt_bias are overwritten
  void* workspace = nullptr;   // KernelSizes::GatedDeltaBackwardWorkspaceBytes
  int64_t workspace_bytes = 0;
};

// The norm of the delta net's output and its gate: out = x * rstd * weight * silu(gate), with rstd
// = 1 / sqrt(mean(x^2) + epsilon) over a head, in FP32 and rounded once (transformers also rounds
// x * rstd and its product with the weight to T).
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

// `forward` has the inputs; its `out` is not used.
struct GatedNormBackwardArgs {
  GatedNormArgs forward;
  // T [tokens, heads, head_dim], contiguous. It is overwritten by the norm's output, with the same
  // bits as GatedNorm gives, because the gradient of the next projection's weight needs that.
  void* dout = nullptr;
  void* dx = nullptr;     // T [tokens, heads, head_dim], contiguous; may be x
  void* dgate = nullptr;  // T [tokens, heads, head_dim]; may be gate
  int64_t dgate_stride = 0;
  float* dweight = nullptr;  // [head_dim], FP32; may be null
  bool add_dweight = true;   // false: dweight is overwritten
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_DELTA_ARGS_H_

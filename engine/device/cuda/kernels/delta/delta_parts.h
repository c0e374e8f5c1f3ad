// The parts that the kernels of the gated delta rule (delta_args.h) share: lists of tokens, gates,
// and the memory of the backward pass.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_DELTA_PARTS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_DELTA_PARTS_H_

#include <cstdint>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

inline constexpr int kDeltaChunkTokens = static_cast<int>(kDeltaChunk);

// The tokens at which the thread blocks of a launch begin. The list is an argument of the kernel,
// because the documents' starts are in host memory. More than kMax tokens take several launches.
struct TokenList {
  static constexpr int kMax = 512;
  int32_t count = 0;
  int32_t tokens[kMax] = {};
};
static_assert(sizeof(TokenList) + sizeof(GatedDeltaBackwardArgs) + 256 <= 4096,
              "a kernel's arguments");

// Calls launch(list) for lists that together have the first token of every document or, if step >
// 0, every step-th token of every document from its first on. Empty documents have none. Stops at
// the first result of `launch` that is not 0 and returns it. Returns 0 otherwise.
template <typename F>
int ForTokenLists(const DeltaDocuments& documents, int64_t step, const F& launch) {
  TokenList list;
  for (int64_t d = 0; d < documents.documents; ++d) {
    const int32_t begin = documents.starts[d], end = documents.starts[d + 1];
    for (int64_t t = begin; t<end; t += step> 0 ? step : end - begin) {
      list.tokens[list.count++] = static_cast<int32_t>(t);
      if (list.count < TokenList::kMax) continue;
      if (const int error = launch(list); error != 0) return error;
      list.count = 0;
    }
  }
  return list.count > 0 ? launch(list) : 0;
}

// The gates of a token of a value head: beta and the logarithm of decay (GatedDeltaArgs).
struct DeltaGates {
  float beta, log_decay;
  float slope;  // the derivative of log_decay by a
};

// Returns 1 / (1 + exp(-x)).
__device__ inline float DeltaSigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Computes the gates of a token of value head `head`.
template <typename T>
__device__ DeltaGates GatesOf(const GatedDeltaArgs& args, int64_t token, int64_t head) {
  const float rate = -expf(ToFloat(static_cast<const T*>(args.a_log)[head]));
  const float input = ToFloat(static_cast<const T*>(args.a)[token * args.a_stride + head]) +
                      ToFloat(static_cast<const T*>(args.dt_bias)[head]);
  const float b = ToFloat(static_cast<const T*>(args.b)[token * args.b_stride + head]);
  const float softplus = fmaxf(input, 0.0f) + log1pf(expf(-fabsf(input)));
  return {DeltaSigmoid(b), rate * softplus, rate * DeltaSigmoid(input)};
}

// Returns the address of a token's elements of a key head in `x`, which is q or k with its stride.
template <typename T>
__device__ const T* KeyRow(const void* x, int64_t stride, int64_t token, int64_t key_head,
                           int64_t key_dim) {
  return static_cast<const T*>(x) + token * stride + key_head * key_dim;
}

// Returns 1 / sqrt(sum of squares + 1e-6) of a row of n elements to all lanes of a warp. All lanes
// must call it.
template <typename T>
__device__ float InverseLength(const T* row, int n, int lane) {
  float sum = 0;
  for (int i = lane; i < n; i += kWarp) sum += ToFloat(row[i]) * ToFloat(row[i]);
  return 1.0f / sqrtf(TeamSum<kWarp>(sum, nullptr) + 1e-6f);
}

// The device memory in which the backward pass keeps values between its kernels, for the key heads
// [first_key_head, first_key_head + key_heads) and their value heads. It lies in the workspace.
struct DeltaKept {
  // [value heads, tokens / kDeltaChunk, key_dim, value_dim]: the state at the start of each chunk
  // that is not its document's first, and the gradient by that state, which comes from the tokens
  // from there on. Such chunks begin at least kDeltaChunk tokens apart, so StateOf gives each of
  // them its own place.
  float *states = nullptr, *dstates = nullptr;
  float *u = nullptr, *du = nullptr;  // [value heads, tokens, value_dim]: u and the gradient by it
  // [key heads, tokens, key_dim]: the gradients by q^ and k^, summed over the value heads
  float *dq = nullptr, *dk = nullptr;
  // [tokens, all value heads, 2]: the row of a chunk's first token has the chunk's sums of the
  // gradients by a_log and dt_bias. The other rows are not used.
  float* gate_sums = nullptr;
  int64_t first_key_head = 0, key_heads = 0;

  // Returns the index of value head `head` among the value heads that are kept.
  __device__ int64_t Head(const GatedDeltaArgs& args, int64_t head) const {
    return head - first_key_head * (args.value_heads / args.key_heads);
  }
  // Returns the offset in `states` and `dstates`, in elements, of value head `head` at the chunk
  // that begins at `token`. REQUIRES: this is not its document's first chunk.
  __device__ int64_t StateOf(const GatedDeltaArgs& args, int64_t head, int64_t token) const {
    return (Head(args, head) * (args.documents.tokens / kDeltaChunk) + token / kDeltaChunk - 1) *
           args.key_dim * args.value_dim;
  }
  // Returns the offset in `u` and `du`, in elements, of a token's row of value head `head`.
  __device__ int64_t ValuesOf(const GatedDeltaArgs& args, int64_t head, int64_t token) const {
    return (Head(args, head) * args.documents.tokens + token) * args.value_dim;
  }
  // Returns the offset in `dq` and `dk`, in elements, of a token's row of key head `key_head`.
  __device__ int64_t KeysOf(const GatedDeltaArgs& args, int64_t key_head, int64_t token) const {
    return ((key_head - first_key_head) * args.documents.tokens + token) * args.key_dim;
  }
};

// Queues the first sweep of the backward pass over the tokens, which goes forwards and writes
// kept.u and kept.states. Returns a cudaError_t, kInvalidValue if key_dim exceeds kDeltaKeyDimMax.
int KeepStates(const Queue& queue, const GatedDeltaArgs& args, const DeltaKept& kept);
// Queues the second sweep, which goes backwards and writes kept.du, kept.dstates and the kept
// heads' part of args.dv. Returns the errors of KeepStates. Neither sweep reads what the other
// writes.
int KeepStateGradients(const Queue& queue, const GatedDeltaBackwardArgs& args,
                       const DeltaKept& kept);

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_DELTA_PARTS_H_

// The causal convolution of the gated delta net and its gradient, FP32 inside. All kernels are
// taken as kCausalConvKernelMax wide, with weights of 0 before their first, so that loops are
// unrolled and nothing is indexed in registers: memory bounds these kernels.
#include <algorithm>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWidth = static_cast<int>(kCausalConvKernelMax);

__device__ inline float ConvSigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// to[j] is the weight of the input kWidth - 1 - j tokens before.
template <typename T>
__device__ void LoadWeights(const CausalConvArgs& args, int64_t channel, float (&to)[kWidth]) {
  const int kernel = static_cast<int>(args.kernel), absent = kWidth - kernel;
  const T* const weight = static_cast<const T*>(args.weight) + channel * kernel;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) to[j] = j >= absent ? ToFloat(weight[j - absent]) : 0.0f;
}

// The input of a channel at a token of the document that begins at `begin`. Tokens before that are
// those of the state, if there is one, else zeros.
template <typename T>
__device__ float InputAt(const CausalConvArgs& args, int64_t channel, int64_t token, int64_t begin,
                         int64_t state_row) {
  if (token >= begin)
    return ToFloat(static_cast<const T*>(args.x)[token * args.x_stride + channel]);
  const int64_t before = args.kernel - 1, i = before + token - begin;
  if (state_row < 0 || i < 0) return 0.0f;
  return ToFloat(static_cast<const T*>(
      args.initial_states)[(state_row * before + i) * args.channels + channel]);
}

__device__ inline int64_t InitialRow(const CausalConvArgs& args, int64_t token) {
  return args.initial_states != nullptr && args.documents.state_rows != nullptr
             ? args.documents.state_rows[token]
             : -1;
}

// A thread a channel of a token: blockIdx.x counts tokens, blockIdx.y blocks of channels.
template <typename T>
__global__ void __launch_bounds__(kThreads) ConvKernel(CausalConvArgs args) {
  const int64_t channel = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  const int64_t token = blockIdx.x;
  if (channel >= args.channels) return;
  float weight[kWidth];
  LoadWeights<T>(args, channel, weight);
  const int64_t begin = args.documents.bounds[2 * token], row = InitialRow(args, token);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    sum += weight[j] * InputAt<T>(args, channel, token - (kWidth - 1) + j, begin, row);
  }
  static_cast<T*>(args.y)[token * args.y_stride + channel] = FromFloat<T>(sum * ConvSigmoid(sum));
}

// A thread a channel of a document, whose last token the block has. Row j of the final state is
// read before a later row of the initial one, which may be the same memory, is written.
template <typename T>
__global__ void __launch_bounds__(kThreads) ConvStatesKernel(CausalConvArgs args) {
  const int64_t channel = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  const int64_t token = blockIdx.x, end = args.documents.bounds[2 * token + 1];
  const int64_t row = args.documents.state_rows[token];
  if (channel >= args.channels || token + 1 != end || row < 0) return;
  const int64_t begin = args.documents.bounds[2 * token], initial = InitialRow(args, token);
  const int64_t before = args.kernel - 1;
  for (int64_t j = 0; j < before; ++j) {
    static_cast<T*>(args.final_states)[(row * before + j) * args.channels + channel] =
        FromFloat<T>(InputAt<T>(args, channel, end - before + j, begin, initial));
  }
}

// A thread has a channel of tokens [first, first + run), blockIdx.x counts runs. It goes from the
// last token to the first with windows of inputs and of slopes dp = dy * silu'(p) in registers, and
// begins kernel - 1 tokens later, whose slopes the run's last tokens need. Row blockIdx.x of
// `partial` gets the run's sums of dweight [channels, kernel].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ConvBackwardKernel(CausalConvBackwardArgs args, int64_t run, float* partial) {
  const CausalConvArgs& forward = args.forward;
  const int64_t channel = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (channel >= forward.channels) return;
  const int64_t tokens = forward.documents.tokens, first = blockIdx.x * run;
  const int64_t last = tokens - first < run ? tokens : first + run;
  const int64_t readers_end =
      tokens - last < forward.kernel - 1 ? tokens : last + forward.kernel - 1;
  const T* const x_of = static_cast<const T*>(forward.x) + channel;
  const auto x_at = [&](int64_t t) { return t >= 0 ? ToFloat(x_of[t * forward.x_stride]) : 0.0f; };
  float weight[kWidth], x[kWidth], slopes[kWidth] = {}, sums[kWidth] = {};
  LoadWeights<T>(forward, channel, weight);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) x[j] = x_at(readers_end - kWidth + j);
  for (int64_t t = readers_end - 1; t >= first; --t) {
    const int64_t begin = forward.documents.bounds[2 * t];
    if (t + 1 == forward.documents.bounds[2 * t + 1]) {  // nothing later reads this document
#pragma unroll
      for (int j = 0; j < kWidth; ++j) slopes[j] = 0;
    }
    float seen[kWidth], p = 0;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      seen[j] = t - (kWidth - 1) + j >= begin ? x[j] : 0.0f;
      p += weight[j] * seen[j];
    }
    const float s = ConvSigmoid(p);
    const float dy = ToFloat(static_cast<const T*>(args.dy)[t * args.dy_stride + channel]);
#pragma unroll
    for (int j = kWidth - 1; j > 0; --j) slopes[j] = slopes[j - 1];
    slopes[0] = dy * (s * (1.0f + p * (1.0f - s)));
    if (t < last) {
      float dx = 0;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        dx += weight[kWidth - 1 - j] * slopes[j];
        sums[j] += slopes[0] * seen[j];
      }
      static_cast<T*>(args.dx)[t * args.dx_stride + channel] = FromFloat<T>(dx);
    }
#pragma unroll
    for (int j = kWidth - 1; j > 0; --j) x[j] = x[j - 1];
    x[0] = x_at(t - kWidth);
  }
  const int kernel = static_cast<int>(forward.kernel);
  float* const to = partial + (blockIdx.x * forward.channels + channel) * kernel;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (j >= kWidth - kernel) to[j - (kWidth - kernel)] = sums[j];
  }
}

dim3 GridOf(int64_t rows, int64_t channels) {
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(CeilDiv(channels, kThreads)), 1);
}

}  // namespace

int CausalConv(const Queue& queue, const CausalConvArgs& args) {
  if (args.documents.tokens == 0) return 0;
  if (args.kernel > kCausalConvKernelMax) return kInvalidValue;
  const bool fp32 = args.dtype == DType::kF32;
  const dim3 grid = GridOf(args.documents.tokens, args.channels);
  const int error =
      Launch(fp32 ? ConvKernel<float> : ConvKernel<Bf16>, grid, kThreads, 0, queue, args);
  if (error != 0 || args.final_states == nullptr || args.documents.state_rows == nullptr) {
    return error;
  }
  return Launch(fp32 ? ConvStatesKernel<float> : ConvStatesKernel<Bf16>, grid, kThreads, 0, queue,
                args);
}

int CausalConvBackward(const Queue& queue, const CausalConvBackwardArgs& args, void* scratch) {
  const CausalConvArgs& forward = args.forward;
  const int64_t tokens = forward.documents.tokens, width = forward.channels * forward.kernel;
  if (tokens == 0) return 0;
  if (forward.kernel > kCausalConvKernelMax) return kInvalidValue;
  // A run is so long that the tokens behind it cost little.
  constexpr int64_t kRunMin = 32;
  const int64_t runs_max = PartialSumBlocks(queue, CeilDiv(tokens, kRunMin), width);
  if (runs_max == 0) return kInvalidValue;
  const int64_t run = CeilDiv(tokens, runs_max), runs = CeilDiv(tokens, run);
  float* const partial = static_cast<float*>(scratch);
  const int error =
      Launch(forward.dtype == DType::kF32 ? ConvBackwardKernel<float> : ConvBackwardKernel<Bf16>,
             GridOf(runs, forward.channels), kThreads, 0, queue, args, run, partial);
  if (error != 0 || args.dweight == nullptr) return error;
  return AddPartialSums(queue, partial, runs, width, args.add_dweight, args.dweight);
}

}  // namespace megatrain::cuda

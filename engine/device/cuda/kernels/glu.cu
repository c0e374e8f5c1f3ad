// SwiGLU and its gradient, element by element: moved in packs of 16 bytes, bound by memory.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;

// The quick division is good to 2 in the last place, and 0 where the result would be denormal.
__device__ inline float Sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// Both directions compute the output alike, so that the bits agree.
__device__ inline float Activated(float gate, float sigmoid, float up) {
  return gate * (sigmoid * up);
}

template <typename T, int kCount>
__global__ void GluKernel(GluArgs args, uint32_t threads) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const uint32_t packs = static_cast<uint32_t>(args.width / kCount);
  const int64_t token = thread / packs, i = thread % packs * kCount;
  const T* const gate_up = static_cast<const T*>(args.gate_up) + token * 2 * args.width + i;
  float gate[kCount], up[kCount];
  Load(gate_up, gate);
  Load(gate_up + args.width, up);
#pragma unroll
  for (int j = 0; j < kCount; ++j) gate[j] = Activated(gate[j], Sigmoid(gate[j]), up[j]);
  Store(gate, static_cast<T*>(args.out) + token * args.width + i);
}

template <typename T, int kCount>
__global__ void GluBackwardKernel(GluBackwardArgs args, uint32_t threads) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const uint32_t packs = static_cast<uint32_t>(args.width / kCount);
  const int64_t token = thread / packs, i = thread % packs * kCount;
  const int64_t at = token * 2 * args.width + i;
  float gate[kCount], up[kCount], dout[kCount];
  Load(static_cast<const T*>(args.gate_up) + at, gate);
  Load(static_cast<const T*>(args.gate_up) + at + args.width, up);
  Load(static_cast<T*>(args.dout) + token * args.width + i, dout);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const float sigmoid = Sigmoid(gate[j]);
    const float dgate = dout[j] * up[j] * sigmoid * (1.0f + gate[j] * (1.0f - sigmoid));
    const float dup = dout[j] * gate[j] * sigmoid;
    dout[j] = Activated(gate[j], sigmoid, up[j]);
    gate[j] = dgate;
    up[j] = dup;
  }
  Store(gate, static_cast<T*>(args.dgate_up) + at);
  Store(up, static_cast<T*>(args.dgate_up) + at + args.width);
  Store(dout, static_cast<T*>(args.dout) + token * args.width + i);
}

template <typename T, int kCount>
int LaunchForward(const Queue& queue, const GluArgs& args) {
  const int64_t threads = args.tokens * (args.width / kCount);
  if (threads == 0) return 0;
  if (threads > kThreadsMax) return kInvalidValue;
  return Launch(GluKernel<T, kCount>, Grid(CeilDiv(threads, kThreads)), kThreads, 0, queue, args,
                static_cast<uint32_t>(threads));
}

template <typename T, int kCount>
int LaunchBackward(const Queue& queue, const GluBackwardArgs& args) {
  const int64_t threads = args.tokens * (args.width / kCount);
  if (threads == 0) return 0;
  if (threads > kThreadsMax) return kInvalidValue;
  return Launch(GluBackwardKernel<T, kCount>, Grid(CeilDiv(threads, kThreads)), kThreads, 0, queue,
                args, static_cast<uint32_t>(threads));
}

template <typename T>
int GluOf(const Queue& queue, const GluArgs& args) {
  return MovesPacks(queue, {args.gate_up, args.out}, {args.width * int64_t{sizeof(T)}})
             ? LaunchForward<T, kPackCount<T>>(queue, args)
             : LaunchForward<T, 1>(queue, args);
}

template <typename T>
int GluBackwardOf(const Queue& queue, const GluBackwardArgs& args) {
  return MovesPacks(queue, {args.gate_up, args.dout, args.dgate_up},
                    {args.width * int64_t{sizeof(T)}})
             ? LaunchBackward<T, kPackCount<T>>(queue, args)
             : LaunchBackward<T, 1>(queue, args);
}

}  // namespace

int Glu(const Queue& queue, const GluArgs& args) {
  return args.dtype == DType::kF32 ? GluOf<float>(queue, args) : GluOf<Bf16>(queue, args);
}

int GluBackward(const Queue& queue, const GluBackwardArgs& args) {
  return args.dtype == DType::kF32 ? GluBackwardOf<float>(queue, args)
                                   : GluBackwardOf<Bf16>(queue, args);
}

}  // namespace megatrain::cuda

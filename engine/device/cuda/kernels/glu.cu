// Gated units and their gradients, element by element: moved in packs of 16 bytes, bound by memory.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;

// The quick division is good to 2 in the last place, and 0 where the result would be denormal.
__device__ inline float Sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// A unit's output and gradients.
struct Unit {
  float out, dgate, dup;
};

// Both directions compute the output by the same function, so that the bits agree. A NaN stays one.
template <GluActivation kActivation, typename Args>
__device__ Unit UnitOf(const Args& args, float gate, float up, float dout) {
  if constexpr (kActivation == GluActivation::kSilu) {
    const float s = Sigmoid(gate);
    return {gate * (s * up), dout * up * s * (1.0f + gate * (1.0f - s)), dout * gate * s};
  } else if constexpr (kActivation == GluActivation::kGeluTanh) {
    // (1 + tanh(z)) / 2 = sigmoid(2 z), which has no cancellation where the gate is negative.
    constexpr float kLinear = 1.5957691216f;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715f * kLinear;
    const float square = gate * gate;
    const float s = Sigmoid(gate * fmaf(square, kCubic, kLinear));
    const float slope = fmaf(gate * s * (1.0f - s), fmaf(square, 3 * kCubic, kLinear), s);
    return {gate * (s * up), dout * up * slope, dout * gate * s};
  } else {
    static_assert(kActivation == GluActivation::kClampedSilu);
    const bool above = gate > args.limit, outside = fabsf(up) > args.limit;
    const float g = above ? args.limit : gate;
    const float u = (outside ? copysignf(args.limit, up) : up) + 1.0f;
    const float x = args.slope * g;
    const float s = Sigmoid(x);
    return {g * (s * u), above ? 0.0f : dout * u * s * (1.0f + x * (1.0f - s)),
            outside ? 0.0f : dout * g * s};
  }
}

// Where two packs of a token's gate_up lie, and what they hold: the gates and the ups of kCount
// elements or, interleaved, pairs of gate and up.
template <int kCount, typename Args>
struct GatePairs {
  bool interleaved;
  int64_t first, second;

  __device__ GatePairs(const Args& args, int64_t token, int64_t i)
      : interleaved(args.interleaved),
        first(token * 2 * args.width + (args.interleaved ? 2 * i : i)),
        second(first + (args.interleaved ? kCount : args.width)) {}

  template <typename T>
  __device__ void Load(const void* gate_up, float (&gate)[kCount], float (&up)[kCount]) const {
    float a[kCount], b[kCount];
    cuda::Load(static_cast<const T*>(gate_up) + first, a);
    cuda::Load(static_cast<const T*>(gate_up) + second, b);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      gate[j] = interleaved ? (2 * j < kCount ? a[2 * j] : b[2 * j - kCount]) : a[j];
      up[j] = interleaved ? (2 * j + 1 < kCount ? a[2 * j + 1] : b[2 * j + 1 - kCount]) : b[j];
    }
  }
  template <typename T>
  __device__ void Store(const float (&gate)[kCount], const float (&up)[kCount],
                        void* gate_up) const {
    float a[kCount], b[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      // Elements j and kCount + j of the pairs.
      const int k = kCount + j;
      a[j] = interleaved ? (j % 2 == 0 ? gate[j / 2] : up[j / 2]) : gate[j];
      b[j] = interleaved ? (k % 2 == 0 ? gate[k / 2] : up[k / 2]) : up[j];
    }
    cuda::Store(a, static_cast<T*>(gate_up) + first);
    cuda::Store(b, static_cast<T*>(gate_up) + second);
  }
};

template <typename T, int kCount, GluActivation kActivation>
__global__ void GluKernel(GluArgs args, uint32_t threads) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const uint32_t packs = static_cast<uint32_t>(args.width / kCount);
  const int64_t token = thread / packs, i = thread % packs * kCount;
  float gate[kCount], up[kCount];
  GatePairs<kCount, GluArgs>(args, token, i).template Load<T>(args.gate_up, gate, up);
#pragma unroll
  for (int j = 0; j < kCount; ++j) gate[j] = UnitOf<kActivation>(args, gate[j], up[j], 0.0f).out;
  Store(gate, static_cast<T*>(args.out) + token * args.width + i);
}

template <typename T, int kCount, GluActivation kActivation>
__global__ void GluBackwardKernel(GluBackwardArgs args, uint32_t threads) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const uint32_t packs = static_cast<uint32_t>(args.width / kCount);
  const int64_t token = thread / packs, i = thread % packs * kCount;
  const GatePairs<kCount, GluBackwardArgs> pairs(args, token, i);
  float gate[kCount], up[kCount], dout[kCount];
  pairs.template Load<T>(args.gate_up, gate, up);
  Load(static_cast<T*>(args.dout) + token * args.width + i, dout);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const Unit unit = UnitOf<kActivation>(args, gate[j], up[j], dout[j]);
    dout[j] = unit.out;
    gate[j] = unit.dgate;
    up[j] = unit.dup;
  }
  pairs.template Store<T>(gate, up, args.dgate_up);
  Store(dout, static_cast<T*>(args.dout) + token * args.width + i);
}

// Where a thread's pack of a SigmoidGate lies: in x, which is contiguous, and in a gate.
struct GatePlace {
  int64_t x, token, head, i;

  __device__ int64_t Gate(int64_t stride, int64_t head_stride) const {
    return token * stride + head * head_stride + i;
  }
};

template <int kCount>
__device__ GatePlace PlaceOf(const SigmoidGateArgs& args, uint32_t thread) {
  const uint32_t packs = static_cast<uint32_t>(args.head_dim / kCount);
  const uint32_t heads = static_cast<uint32_t>(args.heads);
  const uint32_t row = thread / packs, token = row / heads;
  return {static_cast<int64_t>(thread) * kCount, token, row - token * heads,
          (thread - row * packs) * kCount};
}

template <typename T, int kCount>
__global__ void SigmoidGateKernel(SigmoidGateArgs args, uint32_t threads) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const GatePlace at = PlaceOf<kCount>(args, thread);
  float x[kCount], gate[kCount];
  Load(static_cast<const T*>(args.x) + at.x, x);
  Load(static_cast<const T*>(args.gate) + at.Gate(args.gate_stride, args.gate_head_stride), gate);
#pragma unroll
  for (int j = 0; j < kCount; ++j) x[j] *= Sigmoid(gate[j]);
  Store(x, static_cast<T*>(args.out) + at.x);
}

template <typename T, int kCount>
__global__ void SigmoidGateBackwardKernel(SigmoidGateBackwardArgs args, uint32_t threads) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const SigmoidGateArgs& f = args.forward;
  const GatePlace at = PlaceOf<kCount>(f, thread);
  float x[kCount], gate[kCount], dout[kCount];
  Load(static_cast<const T*>(f.x) + at.x, x);
  Load(static_cast<const T*>(f.gate) + at.Gate(f.gate_stride, f.gate_head_stride), gate);
  Load(static_cast<T*>(args.dout) + at.x, dout);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const float s = Sigmoid(gate[j]), d = dout[j];
    dout[j] = x[j] * s;
    gate[j] = d * dout[j] * (1.0f - s);
    x[j] = d * s;
  }
  Store(x, static_cast<T*>(args.dx) + at.x);
  Store(gate, static_cast<T*>(args.dgate) + at.Gate(args.dgate_stride, args.dgate_head_stride));
  Store(dout, static_cast<T*>(args.dout) + at.x);
}

template <typename Args>
int LaunchElements(void (*kernel)(Args, uint32_t), const Queue& queue, const Args& args,
                   int64_t threads) {
  if (threads == 0) return 0;
  if (threads > kThreadsMax) return kInvalidValue;
  return Launch(kernel, Grid(CeilDiv(threads, kThreads)), kThreads, 0, queue, args,
                static_cast<uint32_t>(threads));
}

// Calls f with the unit's activation.
template <typename F>
int WithActivation(GluActivation activation, F f) {
  switch (activation) {
    case GluActivation::kSilu:
      return f.template operator()<GluActivation::kSilu>();
    case GluActivation::kGeluTanh:
      return f.template operator()<GluActivation::kGeluTanh>();
    case GluActivation::kClampedSilu:
      return f.template operator()<GluActivation::kClampedSilu>();
  }
  return kInvalidValue;
}

template <typename T>
int GluOf(const Queue& queue, const GluArgs& args) {
  const bool packs = MovesPacks(queue, {args.gate_up, args.out}, {args.width * int64_t{sizeof(T)}});
  return WithActivation(args.activation, [&]<GluActivation kActivation>() {
    constexpr int kCount = kPackCount<T>;
    return packs ? LaunchElements(GluKernel<T, kCount, kActivation>, queue, args,
                                  args.tokens * (args.width / kCount))
                 : LaunchElements(GluKernel<T, 1, kActivation>, queue, args,
                                  args.tokens * args.width);
  });
}

template <typename T>
int GluBackwardOf(const Queue& queue, const GluBackwardArgs& args) {
  const bool packs = MovesPacks(queue, {args.gate_up, args.dout, args.dgate_up},
                                {args.width * int64_t{sizeof(T)}});
  return WithActivation(args.activation, [&]<GluActivation kActivation>() {
    constexpr int kCount = kPackCount<T>;
    return packs ? LaunchElements(GluBackwardKernel<T, kCount, kActivation>, queue, args,
                                  args.tokens * (args.width / kCount))
                 : LaunchElements(GluBackwardKernel<T, 1, kActivation>, queue, args,
                                  args.tokens * args.width);
  });
}

template <typename T>
int SigmoidGateOf(const Queue& queue, const SigmoidGateArgs& args) {
  constexpr int64_t kSize = sizeof(T);
  const int64_t elements = args.tokens * args.heads * args.head_dim;
  return MovesPacks(
             queue, {args.x, args.gate, args.out},
             {args.head_dim * kSize, args.gate_stride * kSize, args.gate_head_stride * kSize})
             ? LaunchElements(SigmoidGateKernel<T, kPackCount<T>>, queue, args,
                              elements / kPackCount<T>)
             : LaunchElements(SigmoidGateKernel<T, 1>, queue, args, elements);
}

template <typename T>
int SigmoidGateBackwardOf(const Queue& queue, const SigmoidGateBackwardArgs& args) {
  constexpr int64_t kSize = sizeof(T);
  const SigmoidGateArgs& f = args.forward;
  const int64_t elements = f.tokens * f.heads * f.head_dim;
  return MovesPacks(queue, {f.x, f.gate, args.dout, args.dx, args.dgate},
                    {f.head_dim * kSize, f.gate_stride * kSize, f.gate_head_stride * kSize,
                     args.dgate_stride * kSize, args.dgate_head_stride * kSize})
             ? LaunchElements(SigmoidGateBackwardKernel<T, kPackCount<T>>, queue, args,
                              elements / kPackCount<T>)
             : LaunchElements(SigmoidGateBackwardKernel<T, 1>, queue, args, elements);
}

}  // namespace

int Glu(const Queue& queue, const GluArgs& args) {
  return args.dtype == DType::kF32 ? GluOf<float>(queue, args) : GluOf<Bf16>(queue, args);
}

int GluBackward(const Queue& queue, const GluBackwardArgs& args) {
  return args.dtype == DType::kF32 ? GluBackwardOf<float>(queue, args)
                                   : GluBackwardOf<Bf16>(queue, args);
}

int SigmoidGate(const Queue& queue, const SigmoidGateArgs& args) {
  return args.dtype == DType::kF32 ? SigmoidGateOf<float>(queue, args)
                                   : SigmoidGateOf<Bf16>(queue, args);
}

int SigmoidGateBackward(const Queue& queue, const SigmoidGateBackwardArgs& args) {
  return args.forward.dtype == DType::kF32 ? SigmoidGateBackwardOf<float>(queue, args)
                                           : SigmoidGateBackwardOf<Bf16>(queue, args);
}

}  // namespace megatrain::cuda

// Rotary positions in place: a thread rotates kCount pairs (i, i + head_dim / 2) of one head.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int kCount>
__global__ void RopeKernel(RopeArgs args, int64_t threads) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const int64_t half = args.head_dim / 2, packs = half / kCount;
  const int64_t i = thread % packs * kCount;
  const int64_t head = thread / packs % args.heads;
  const int64_t token = thread / packs / args.heads;
  T* const first = static_cast<T*>(args.x) + token * args.stride + head * args.head_dim + i;
  const int64_t table = static_cast<int64_t>(args.positions[token]) * half + i;
  float a[kCount], b[kCount];
  Load(first, a);
  Load(first + half, b);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const float c = args.cosine[table + j];
    const float s = args.inverse ? -args.sine[table + j] : args.sine[table + j];
    const float rotated = a[j] * c - b[j] * s;
    b[j] = b[j] * c + a[j] * s;
    a[j] = rotated;
  }
  Store(a, first);
  Store(b, first + half);
}

template <typename T, int kCount>
int LaunchRope(void* stream, const RopeArgs& args) {
  const int64_t threads = args.tokens * args.heads * (args.head_dim / 2 / kCount);
  if (threads == 0) return 0;
  return Launch(RopeKernel<T, kCount>, Grid(CeilDiv(threads, kThreads)), kThreads, 0, stream, args,
                threads);
}

template <typename T>
int RopeOf(void* stream, const RopeArgs& args) {
  constexpr int64_t kSize = sizeof(T);
  return Aligned({args.x}, {args.stride * kSize, args.head_dim / 2 * kSize})
             ? LaunchRope<T, kPackCount<T>>(stream, args)
             : LaunchRope<T, 1>(stream, args);
}

}  // namespace

int Rope(void* stream, const RopeArgs& args) {
  return args.dtype == DType::kF32 ? RopeOf<float>(stream, args) : RopeOf<Bf16>(stream, args);
}

}  // namespace megatrain::cuda

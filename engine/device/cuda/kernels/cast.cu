// BF16 to FP32, and FP32 to BF16 in the same memory. Element i goes from byte 4i to byte 2i, onto
// what elements i / 2 held; so the elements [n, 2n) may be cast in any order once those before n
// are done, and each launch does as many as all before it. The first ones go by the scratch memory.
#include <algorithm>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
// Packs of a thread, which asks for all before it writes one.
constexpr int kHeld = 4;
constexpr int64_t kBlockPacks = kThreads * kHeld;
// Few launches, each with work for the whole card, against bytes that are moved twice.
constexpr int64_t kFirstElements = int64_t{2} << 20;
static_assert(kFirstElements * int64_t{sizeof(Bf16)} <= kScratchBytes);

// To nearest as on the host, bit by bit, NaNs too: these weights are compared with the host's.
template <int kCount>
__device__ Pack<Bf16, kCount> Round(const Pack<float, kCount>& pack) {
  float v[kCount];
  Widen(pack, v);
  Pack<Bf16, kCount> rounded;
  if constexpr (kCount == 1) {
    rounded.words[0] = RoundToBf16(v[0]).bits;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      rounded.words[i / 2] =
          RoundToBf16(v[i]).bits | static_cast<uint32_t>(RoundToBf16(v[i + 1]).bits) << 16;
    }
  }
  return rounded;
}
template <int kCount>
__device__ Pack<Bf16, kCount> Round(const Pack<Bf16, kCount>& pack) {
  return pack;
}

// to[i] = from[i], i < n, in packs; the last few elements one by one.
template <typename From, int kElements>
__global__ void __launch_bounds__(kThreads) CastKernel(const From* from, Bf16* to, int64_t n) {
  const int64_t packs = n / kElements, first = blockIdx.x * kBlockPacks + threadIdx.x;
  Pack<From, kElements> held[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t pack = first + h * kThreads;
    held[h] = LoadPack<From, kElements>(from + pack * kElements, pack < packs);
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t pack = first + h * kThreads;
    if (pack < packs) StorePack(Round(held[h]), to + pack * kElements);
  }
  const int64_t rest = packs * kElements + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) to[rest] = RoundToBf16(ToFloat(from[rest]));
}

__global__ void __launch_bounds__(kThreads) WidenKernel(const Bf16* from, int64_t n, float* to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) to[i] = ToFloat(from[i]);
}

template <typename From>
int LaunchCast(const Queue& queue, const From* from, Bf16* to, int64_t n) {
  constexpr int kElements = kPackCount<From>;
  return MovesPacks(queue, {from, to}, {})
             ? Launch(CastKernel<From, kElements>, Grid(CeilDiv(n, kBlockPacks * kElements)),
                      kThreads, 0, queue, from, to, n)
             : Launch(CastKernel<From, 1>, Grid(CeilDiv(n, kBlockPacks)), kThreads, 0, queue, from,
                      to, n);
}

}  // namespace

int CastToBf16InPlace(const Queue& queue, void* x, int64_t n, void* scratch) {
  if (n == 0) return 0;
  if (!Aligned({x, scratch}, {})) return kInvalidValue;
  const float* const from = static_cast<const float*>(x);
  Bf16* const to = static_cast<Bf16*>(x);
  Bf16* const aside = static_cast<Bf16*>(scratch);
  const int64_t begin = std::min(n, kFirstElements);
  int error = LaunchCast(queue, from, aside, begin);
  if (error == 0) error = LaunchCast(queue, static_cast<const Bf16*>(aside), to, begin);
  for (int64_t first = begin; first < n && error == 0; first *= 2) {
    error = LaunchCast(queue, from + first, to + first, std::min(first, n - first));
  }
  return error;
}

int WidenBf16(const Queue& queue, const void* from, int64_t n, float* to) {
  if (n == 0) return 0;
  return Launch(WidenKernel, Grid(CeilDiv(n, kThreads)), kThreads, 0, queue,
                static_cast<const Bf16*>(from), n, to);
}

}  // namespace megatrain::cuda

// Device functions that the kernels share: loads and stores of 16 bytes, conversions, and sums over
// teams of threads.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PRIMITIVES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PRIMITIVES_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "engine/device/cuda/kernels/launch.h"

namespace megatrain::cuda {

// An element of type BF16 on the device.
struct Bf16 {
  uint16_t bits;
};

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(Bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

// Rounds to nearest, ties to even, as FloatToBf16 does on the host. A NaN keeps its upper bits and
// becomes quiet.
__device__ inline Bf16 RoundToBf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  }
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// Converts to T, rounding to BF16 as RoundToBf16 does.
template <typename T>
__device__ T FromFloat(float x);
template <>
__device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ inline Bf16 FromFloat<Bf16>(float x) {
  return RoundToBf16(x);
}

// Rounds two neighbors to BF16 (nearest even) and puts the first into the lower half of a word. A
// NaN stays a NaN.
#ifdef __CUDACC__
__device__ inline uint32_t PackBf16(float first, float second) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}
#else
inline uint32_t PackBf16(float first, float second) {
  return RoundToBf16(first).bits | static_cast<uint32_t>(RoundToBf16(second).bits) << 16;
}
#endif

// A group of kCount adjacent elements that is moved at once, 16 bytes if the operands allow that.
// The elements stay in words until they are used, so that BF16 elements take half as many registers
// as they would singly.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  using Word = std::conditional_t<sizeof(T) * kCount % 4 == 0, uint32_t, uint16_t>;
  static constexpr int kWords = sizeof(T) * kCount / sizeof(Word);
  Word words[kWords];
};

// LoadPack and StorePack move a pack from and to global memory. LoadPack returns zeros without
// reading if `there` is false. REQUIRES: the address is aligned to the size of the pack.
template <typename T, int kCount>
__device__ Pack<T, kCount> LoadPack(const T* from, bool there = true) {
  Pack<T, kCount> pack;
  if constexpr (sizeof(pack) >= sizeof(uint32_t)) {
    LoadWords(from, there, pack.words);
  } else {
    pack.words[0] = there ? reinterpret_cast<const uint16_t*>(from)[0] : 0;
  }
  return pack;
}
template <typename T, int kCount>
__device__ void StorePack(const Pack<T, kCount>& pack, T* to) {
  if constexpr (sizeof(pack) >= sizeof(uint32_t)) {
    StoreWords(pack.words, to);
  } else {
    reinterpret_cast<uint16_t*>(to)[0] = pack.words[0];
  }
}

// Widen converts the elements of a pack to FP32. Narrow converts FP32 to the elements of a pack,
// rounding to nearest even for BF16.
template <int kCount>
__device__ void Widen(const Pack<float, kCount>& pack, float (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = __uint_as_float(pack.words[i]);
}
template <int kCount>
__device__ void Widen(const Pack<Bf16, kCount>& pack, float (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint32_t word = pack.words[kCount == 1 ? 0 : i / 2];
    to[i] = __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
}

template <int kCount>
__device__ void Narrow(const float (&from)[kCount], Pack<float, kCount>& to) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to.words[i] = __float_as_uint(from[i]);
}
template <int kCount>
__device__ void Narrow(const float (&from)[kCount], Pack<Bf16, kCount>& to) {
  if constexpr (kCount == 1) {
    to.words[0] = RoundToBf16(from[0]).bits;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) to.words[i / 2] = PackBf16(from[i], from[i + 1]);
  }
}

// Load and Store move kCount elements of type T as a pack and convert them from and to FP32.
// REQUIRES: the address is aligned to the size of the pack.
template <typename T, int kCount>
__device__ void Load(const T* from, float (&to)[kCount]) {
  Widen(LoadPack<T, kCount>(from), to);
}
template <typename T, int kCount>
__device__ void Store(const float (&from)[kCount], T* to) {
  Pack<T, kCount> pack;
  Narrow(from, pack);
  StorePack(pack, to);
}

// The number of elements of a pack of 16 bytes.
template <typename T>
inline constexpr int kPackCount = 16 / sizeof(T);

// The number of threads of a warp. A team is a group of kTeam adjacent threads that work together.
// kTeam is a power of two. A team is part of one warp, one warp, or all warps of the block.
inline constexpr int kWarp = 32;

// Replaces each x[c] of the team's threads by the sum of the x[c] over the team, which is added in
// the same order every time. All threads of the warp must call it, or all threads of the block if
// the team has several warps. Only teams of several warps use `shared`, which has kCount * kTeam /
// 32 floats. They synchronize with __syncthreads.
template <int kTeam, int kCount>
__device__ void TeamSums(float (&x)[kCount], float* shared) {
#pragma unroll
  for (int step = (kTeam < kWarp ? kTeam : kWarp) / 2; step > 0; step /= 2) {
#pragma unroll
    for (int c = 0; c < kCount; ++c) x[c] += __shfl_xor_sync(~0u, x[c], step);
  }
  if constexpr (kTeam > kWarp) {
    constexpr int kWarps = kTeam / kWarp;
    const int warp = threadIdx.x / kWarp;
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      if (threadIdx.x % kWarp == 0) shared[c * kWarps + warp] = x[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      x[c] = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) x[c] += shared[c * kWarps + i];
    }
    __syncthreads();  // shared may be used again
  }
}

// Returns one sum as TeamSums computes it.
template <int kTeam>
__device__ float TeamSum(float x, float* shared) {
  float sum[1] = {x};
  TeamSums<kTeam>(sum, shared);
  return sum[0];
}

// Returns the sum of x over the warp to each of its threads. All threads of the warp must call it.
__device__ inline double WarpSum(double x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// Returns true if all these addresses and distances (in bytes) are multiples of 16, so that packs
// of 16 bytes can be moved. A null address counts as aligned.
inline bool Aligned(std::initializer_list<const void*> addresses,
                    std::initializer_list<int64_t> distances) {
  for (const void* address : addresses) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  }
  for (int64_t distance : distances) {
    if (distance % 16 != 0) return false;
  }
  return true;
}

// Returns true if a kernel should move these operands in packs: if FastPaths::vector_loads is on
// and the operands are Aligned.
inline bool MovesPacks(const Queue& queue, std::initializer_list<const void*> addresses,
                       std::initializer_list<int64_t> distances) {
  return queue.paths.vector_loads && Aligned(addresses, distances);
}

// The most threads or rows of kernels that count them in 32 bits, because a division in 64 bits
// would take a hundred instructions. It leaves room for the idle threads of a last block.
inline constexpr int64_t kThreadsMax = std::numeric_limits<uint32_t>::max() - 1024;

// Returns a / b, rounded up. REQUIRES: a >= 0, b > 0.
inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns a one-dimensional grid of `blocks` blocks. REQUIRES: 0 < blocks < 2^31.
inline dim3 Grid(int64_t blocks) { return dim3(static_cast<unsigned>(blocks), 1, 1); }

inline constexpr int kInvalidValue = 1;  // the value of cudaErrorInvalidValue

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PRIMITIVES_H_

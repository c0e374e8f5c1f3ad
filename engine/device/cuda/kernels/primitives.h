// What the kernels share: loads and stores of 16 bytes, conversion, sums over teams of threads.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PRIMITIVES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PRIMITIVES_H_

#include <cstdint>
#include <initializer_list>

#include "engine/device/cuda/kernels/launch.h"

namespace megatrain::cuda {

struct Bf16 {
  uint16_t bits;
};

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(Bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

// To nearest, ties to even; a NaN keeps its upper bits, as on the host (FloatToBf16).
__device__ inline Bf16 RoundToBf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  }
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

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

// kCount elements that are moved at once; kCount * sizeof(T) is 16 where the operands allow it.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T v[kCount];
};

template <typename T, int kCount>
__device__ void Load(const T* from, float (&to)[kCount]) {
  const Pack<T, kCount> pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = ToFloat(pack.v[i]);
}

template <typename T, int kCount>
__device__ void Store(const float (&from)[kCount], T* to) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.v[i] = FromFloat<T>(from[i]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

template <typename T>
inline constexpr int kPackCount = 16 / sizeof(T);

// A team is kTeam threads side by side, a warp or several; with several it is the whole block.
inline constexpr int kWarp = 32;

// The sum over the team, in every thread and the same order always. `shared`: kTeam / 32 floats,
// used by teams of several warps, which meet in __syncthreads.
template <int kTeam>
__device__ float TeamSum(float x, float* shared) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  if (kTeam == kWarp) return x;
  const int warp = threadIdx.x / kWarp;
  if (threadIdx.x % kWarp == 0) shared[warp] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kTeam / kWarp; ++i) sum += shared[i];
  __syncthreads();  // shared may be used again
  return sum;
}

__device__ inline double WarpSum(double x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// Whether packs of 16 bytes can be moved at all of these addresses and distances in bytes.
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

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One-dimensional grids have up to 2^31 - 1 blocks.
inline dim3 Grid(int64_t blocks) { return dim3(static_cast<unsigned>(blocks), 1, 1); }

inline constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_PRIMITIVES_H_

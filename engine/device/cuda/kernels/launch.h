// How the kernels of this folder are started and what they need of the language, so that the same
// sources are compiled by nvcc for a GPU and, for the tests of machines without one, by the host's
// compiler over an emulation of blocks, warps and shared memory (tests/engine/device/cuda).
//
// Shared memory is dynamic and asked for through SharedMemory only; warps have 32 lanes and meet in
// __syncwarp, __shfl_xor_sync and __shfl_sync with all lanes.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCH_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCH_H_

#include <cstdint>

#include "engine/device/cuda/kernels/launchers.h"

#ifdef __CUDACC__

#include <cuda_runtime.h>

namespace megatrain::cuda {

// What a block has without asking for more.
inline constexpr int kDefaultSharedBytes = 48 << 10;

template <typename T>
__device__ T* SharedMemory() {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  return reinterpret_cast<T*>(shared_memory);
}

// What nvcc is not left to decide, for on it hangs how much of a memory-bound kernel's work is
// under way at once: a load of global memory stays where it is written, before the use of those
// beside it, and is one instruction, as a store is. kWords 32-bit words, 1, 2 or 4, aligned as a
// whole; a load that is not `there` gives zeros.
template <int kWords>
__device__ void LoadWords(const void* from, bool there, uint32_t (&to)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) to[i] = 0;
  const int p = there;
  if constexpr (kWords == 4) {
    asm volatile(
        "{ .reg .pred p; setp.ne.s32 p, %5, 0; @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
        : "l"(from), "r"(p)
        : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %3, 0; @p ld.global.v2.u32 {%0, %1}, [%2]; }"
                 : "+r"(to[0]), "+r"(to[1])
                 : "l"(from), "r"(p)
                 : "memory");
  } else {
    static_assert(kWords == 1);
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p ld.global.u32 %0, [%1]; }"
                 : "+r"(to[0])
                 : "l"(from), "r"(p)
                 : "memory");
  }
}
template <int kWords>
__device__ void StoreWords(const uint32_t (&from)[kWords], void* to) {
  if constexpr (kWords == 4) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(from[0]), "r"(from[1]),
                 "r"(from[2]), "r"(from[3])
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(from[0]), "r"(from[1])
                 : "memory");
  } else {
    static_assert(kWords == 1);
    asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(from[0]) : "memory");
  }
}

// Starts `kernel` on the queue's stream with `shared` bytes a block; a cudaError_t.
template <typename... Params, typename... Args>
int Launch(void (*kernel)(Params...), dim3 grid, int threads, int shared, const Queue& queue,
           Args... args) {
  if (shared > kDefaultSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(
        reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error != cudaSuccess) return cudaGetLastError();  // which the next launch would find
  }
  kernel<<<grid, threads, shared, static_cast<cudaStream_t>(queue.stream)>>>(args...);
  return cudaGetLastError();
}

}  // namespace megatrain::cuda

#else

#include "tests/engine/device/cuda/emulation.h"

#endif

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCH_H_

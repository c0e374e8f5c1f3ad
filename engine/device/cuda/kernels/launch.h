// Launches kernels and provides the language features that they need. nvcc compiles the kernels'
// sources for a GPU. For tests on machines without a GPU, the host's compiler compiles the same
// sources over an emulation of blocks, warps and shared memory (tests/engine/device/cuda).
//
// Rules for kernels, on which the emulation relies: shared memory is dynamic and accessed through
// SharedMemory only. Warps have 32 lanes, and all lanes take part in __syncwarp, __match_any_sync
// and the shuffles.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCH_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCH_H_

#include <cstdint>

#include "engine/device/cuda/kernels/launchers.h"

#ifdef __CUDACC__

#include <cuda_runtime.h>

namespace megatrain::cuda {

// The bytes of shared memory that a block may use without a request to CUDA.
inline constexpr int kDefaultSharedBytes = 48 << 10;

// Returns the start of the block's dynamic shared memory, aligned to 16 bytes.
template <typename T>
__device__ T* SharedMemory() {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  return reinterpret_cast<T*>(shared_memory);
}

// Loads kWords 32-bit words from global memory. kWords is 1, 2 or 4, and `from` must be aligned to
// kWords * 4 bytes. If `there` is false, nothing is read and the words are zeros. Loads and stores
// are written in PTX so that each is one instruction and the compiler does not move a load towards
// its use. Their order decides how much of a memory-bound kernel's work is in flight at once.
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
// Stores kWords words to global memory, as LoadWords loads them.
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

// Launches `kernel` on the queue's stream, with `threads` threads and `shared` bytes of shared
// memory for each block. Returns a cudaError_t, 0 if the kernel was queued. May return an earlier
// error of CUDA that nobody has fetched. An empty grid is an error. REQUIRES: the stream is of the
// current device.
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

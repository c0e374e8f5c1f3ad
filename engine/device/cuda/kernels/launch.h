// How the kernels of this folder are started and what they need of the language, so that the same
// sources are compiled by nvcc for a GPU and, for the tests of machines without one, by the host's
// compiler over an emulation of blocks, warps and shared memory (tests/engine/device/cuda).
//
// Shared memory is dynamic and asked for through SharedMemory only; warps have 32 lanes and meet in
// __syncwarp, __shfl_xor_sync and __shfl_sync with all lanes.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCH_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCH_H_

#include <cstdint>

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

// Starts `kernel` on the stream with `shared` bytes a block; a cudaError_t.
template <typename... Params, typename... Args>
int Launch(void (*kernel)(Params...), dim3 grid, int threads, int shared, void* stream,
           Args... args) {
  if (shared > kDefaultSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(
        reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error != cudaSuccess) return cudaGetLastError();  // which the next launch would find
  }
  kernel<<<grid, threads, shared, static_cast<cudaStream_t>(stream)>>>(args...);
  return cudaGetLastError();
}

}  // namespace megatrain::cuda

#else

#include "tests/engine/device/cuda/emulation.h"

#endif

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCH_H_

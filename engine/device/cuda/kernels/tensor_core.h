// Functions for the PTX instructions of tensor cores and of the copies that feed them. They
// multiply fragments (matrices that are distributed over the lanes of a warp), load fragments from
// shared memory, and copy to shared memory asynchronously. They need sm_80 or newer.
//
// Each register of a BF16 fragment holds two adjacent elements, the first in the lower half. With g
// = lane / 4 and t = lane % 4, a lane has these parts of the operands a [16, 16] and b [16, 8] and
// of the result d [16, 8] of mma.m16n8k16 (PTX ISA, "Matrix fragments"):
//   a[0]: row g, columns 2t and 2t + 1; a[1]: row g + 8; a[2], a[3]: the same, columns + 8
//   b[0]: rows 2t and 2t + 1 of column g; b[1]: rows + 8
//   d[0], d[1]: row g, columns 2t and 2t + 1; d[2], d[3]: row g + 8
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_TENSOR_CORE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_TENSOR_CORE_H_

#include <cstdint>

#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

#ifdef __CUDACC__

// Returns the address in shared memory, as PTX instructions take it.
__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Computes d[16, 8] += a[16, 16] * b[16, 8], summed in FP32. b0 and b1 are b[0] and b[1] above. All
// lanes of the warp must call it.
__device__ inline void MultiplyBf16(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    float (&d)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four matrices of 8 x 8 BF16 from shared memory. Lane i passes in `row` the address of row i
// % 8 of matrix i / 8. The row has 16 bytes and must be aligned to 16 bytes. to[j] becomes row g,
// columns 2t and 2t + 1 of matrix j. All lanes of the warp must call it.
__device__ inline void LoadMatrices(const void* row, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// Loads the matrices as LoadMatrices does, but transposed: to[j] becomes rows 2t and 2t + 1 of
// column g.
__device__ inline void LoadMatricesTransposed(const void* row, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Begins to copy 16 bytes from global to shared memory. Both addresses must be aligned to 16 bytes.
// If `there` is false, zeros are written and nothing is read.
__device__ inline void CopyAsync(void* shared, const void* global, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(there ? 16 : 0)
               : "memory");
}
// Makes a group of the copies that this thread has begun since the last call.
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until the copies of all groups of this thread except the newest kGroups are done. Other
// threads see the data after __syncthreads.
template <int kGroups>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Returns 2^x to within 2 units in the last place, and 0 for results that would be denormal. This
// is one instruction, while exp2f takes four. The error does not matter, because probabilities are
// rounded to BF16 later.
__device__ inline float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

#else

inline float Exp2(float x) { return exp2f(x); }

#endif

// Returns tanh(x) with an absolute error of at most 3e-7. It is x - x^3 / 3 near 0, and else 1 - 2
// / (1 + exp(2 x)), which near 0 would lose all digits. A NaN stays a NaN.
__device__ inline float Tanh(float x) {
  constexpr float kTwiceLog2OfE = 2.88539008177792681f;
  const float far = 1.0f - __fdividef(2.0f, 1.0f + Exp2(kTwiceLog2OfE * x));
  return fabsf(x) < 0.03f ? x * fmaf(x * x, -1.0f / 3, 1.0f) : far;
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_TENSOR_CORE_H_

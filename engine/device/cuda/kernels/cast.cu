// FP32 to BF16 in the same memory. Element i goes from byte 4i to byte 2i, onto what elements i / 2
// held; so the elements [n, 2n) may be cast in any order once those before n are done, and each
// launch does as many as all before it.
#include <algorithm>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kCount = 4;
// The first elements overlap with themselves: one block reads them all, then writes.
constexpr int kFirst = 16;
constexpr int64_t kFirstElements = kThreads * kFirst;

__global__ void CastFirstKernel(void* x, int64_t n) {
  float held[kFirst];
#pragma unroll
  for (int j = 0; j < kFirst; ++j) {
    const int64_t i = j * kThreads + threadIdx.x;
    held[j] = i < n ? static_cast<const float*>(x)[i] : 0.0f;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kFirst; ++j) {
    const int64_t i = j * kThreads + threadIdx.x;
    if (i < n) static_cast<Bf16*>(x)[i] = RoundToBf16(held[j]);
  }
}

// first is a multiple of kCount.
__global__ void CastKernel(void* x, int64_t first, int64_t last) {
  const int64_t i = first + (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  const float* const from = static_cast<const float*>(x);
  Bf16* const to = static_cast<Bf16*>(x);
  if (i + kCount <= last) {
    float v[kCount];
    Load(from + i, v);
    Store(v, to + i);
    return;
  }
  for (int64_t j = i; j < last; ++j) to[j] = RoundToBf16(from[j]);
}

}  // namespace

int CastToBf16InPlace(void* stream, void* x, int64_t n) {
  if (n == 0) return 0;
  if (!Aligned({x}, {})) return kInvalidValue;
  int error = Launch(CastFirstKernel, Grid(1), kThreads, 0, stream, x, n);
  for (int64_t first = kFirstElements; first < n && error == 0; first *= 2) {
    const int64_t last = std::min(2 * first, n);
    error = Launch(CastKernel, Grid(CeilDiv(last - first, kThreads * kCount)), kThreads, 0, stream,
                   x, first, last);
  }
  return error;
}

}  // namespace megatrain::cuda

// Enough of CUDA to run the kernels of engine/device/cuda/kernels on the host: a block's threads
// are fibers of one host thread, which switch where threads meet. What a GPU would only do wrong is
// refused here: a meeting that not all threads of a block or warp come to ends the process with the
// kernel's place, as copies do that nobody waits for; shared memory begins as NaNs and is exactly
// as long as asked for (so that AddressSanitizer sees beyond its end).
//
// A warp runs until it needs the others, the first or the last one first (SetReverse), and so do
// the lanes of a warp: results must not depend on it, so that a meeting which is missing shows.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATION_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATION_H_

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "engine/device/cuda/kernels/launchers.h"

#define __global__
#define __device__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned x, unsigned y, unsigned z) : x(x), y(y), z(z) {}
};

// Of the fiber that runs.
extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

// The threads of the block meet, or of the warp.
void __syncthreads();
void __syncwarp();

namespace megatrain::cuda {

inline constexpr int kDefaultSharedBytes = 48 << 10;

// A stream as a test makes it; a null stream runs its work at once.
class EmulatedStream {
 public:
  virtual ~EmulatedStream() = default;
  virtual void Enqueue(std::function<void()> work) = 0;
  // What the launch that is about to be made on it gives.
  virtual int LaunchError() { return 0; }
};

void* SharedMemoryOfBlock();
// Gives `bits` to the lanes of the warp, returns those of `lane`.
uint64_t Exchange(uint64_t bits, int lane);

// What tensor_core.h has of PTX, by the layouts of its manual. Copies arrive when they are waited
// for, not before; rows of matrices that would meet in a bank of shared memory are refused.
void MultiplyBf16(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&d)[4]);
void LoadMatrices(const void* row, uint32_t (&to)[4]);
void LoadMatricesTransposed(const void* row, uint32_t (&to)[4]);
void CopyAsync(void* shared, const void* global, bool there);
void CommitCopies();
void WaitForCopies(int groups);
template <int kGroups>
void WaitForCopies() {
  WaitForCopies(kGroups);
}

// In which order the threads of blocks run from now on, in this process.
void SetReverse(bool reverse);

template <typename T>
T* SharedMemory() {
  return static_cast<T*>(SharedMemoryOfBlock());
}

// Words that are not aligned as a whole are refused.
void CheckWords(const void* address, int words);
void SpoilLoad(uint32_t* word);  // as SetKernelFault has it
template <int kWords>
void LoadWords(const void* from, bool there, uint32_t (&to)[kWords]) {
  if (there) CheckWords(from, kWords);
  for (int i = 0; i < kWords; ++i) to[i] = there ? static_cast<const uint32_t*>(from)[i] : 0;
  if (kWords > 1 && there) SpoilLoad(&to[0]);
}
template <int kWords>
void StoreWords(const uint32_t (&from)[kWords], void* to) {
  CheckWords(to, kWords);
  for (int i = 0; i < kWords; ++i) static_cast<uint32_t*>(to)[i] = from[i];
}

// What a kernel, or a GPU, may do wrong: for tests of what is said of it. Set before the first
// launch. The place is a kernel's file, without ".cu", or "vector_loads": loads of several words.
enum class KernelFault {
  kNone,
  kWrong,     // a kernel leaves out its last blocks; a load changes a bit
  kNan,       // a load gives NaNs
  kUnsteady,  // as kWrong, every other time
  kHang,
  kCrash,
};
void SetKernelFault(const std::string& place, KernelFault fault);

void RunKernel(const char* file, dim3 grid, int threads, int shared,
               const std::function<void()>& kernel);

// The including file's, for it has a name of its own.
#ifndef MEGATRAIN_KERNEL_FILE
#define MEGATRAIN_KERNEL_FILE ""
#endif
template <typename... Params, typename... Args>
static int Launch(void (*kernel)(Params...), dim3 grid, int threads, int shared, const Queue& queue,
                  Args... args) {
  // What every device from sm_80 on has; a launch beyond it is cudaErrorInvalidValue.
  constexpr int kSharedBytesMax = 99 << 10;
  if (threads <= 0 || threads > 1024 || shared > kSharedBytesMax || grid.x == 0 || grid.y == 0 ||
      grid.y > 65535) {
    return 1;
  }
  std::function<void()> work = [=] {
    RunKernel(MEGATRAIN_KERNEL_FILE, grid, threads, shared, [=] { kernel(args...); });
  };
  if (queue.stream == nullptr) {
    work();
    return 0;
  }
  EmulatedStream& stream = *static_cast<EmulatedStream*>(queue.stream);
  if (const int error = stream.LaunchError(); error != 0) return error;
  stream.Enqueue(std::move(work));
  return 0;
}

}  // namespace megatrain::cuda

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __fdividef(float x, float y) { return x / y; }
// Rounded to nearest and never fused with another: this is built without contraction.
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline int atomicOr(int* address, int value) {
  return std::atomic_ref<int>(*address).fetch_or(value);
}
inline int __popc(unsigned x) { return std::popcount(x); }

inline float __shfl_xor_sync(unsigned, float x, int step) {
  const uint64_t other = megatrain::cuda::Exchange(std::bit_cast<uint32_t>(x),
                                                   static_cast<int>(threadIdx.x % 32) ^ step);
  return std::bit_cast<float>(static_cast<uint32_t>(other));
}
inline int __shfl_xor_sync(unsigned, int x, int step) {
  return static_cast<int>(megatrain::cuda::Exchange(static_cast<uint32_t>(x),
                                                    static_cast<int>(threadIdx.x % 32) ^ step));
}
inline float __shfl_sync(unsigned, float x, int lane) {
  return std::bit_cast<float>(
      static_cast<uint32_t>(megatrain::cuda::Exchange(std::bit_cast<uint32_t>(x), lane)));
}
inline double __shfl_xor_sync(unsigned, double x, int step) {
  return std::bit_cast<double>(megatrain::cuda::Exchange(
      std::bit_cast<uint64_t>(x), static_cast<int>(threadIdx.x % 32) ^ step));
}
// The lanes that give the same value as this one.
inline unsigned __match_any_sync(unsigned, int x) {
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const uint64_t other = megatrain::cuda::Exchange(static_cast<uint32_t>(x), lane);
    same |= static_cast<unsigned>(other == static_cast<uint32_t>(x)) << lane;
  }
  return same;
}

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATION_H_

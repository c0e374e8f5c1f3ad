// The GPUs that the suites of this folder are run on, those of the edge that they are linked with
// (CUDA's own, or emulated_edge.cc): number 0, and for what several do together all from it on.
// Tests on number 0 share the edge, and with it the graphs that cuDNN takes half a second each to
// build.
#ifndef MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_
#define MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_

#include <atomic>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

// The edge of number 0, opened at its first use.
inline std::shared_ptr<CudaApi>& SharedCuda() {
  static auto& cuda = *new std::shared_ptr<CudaApi>(OpenCudaApi());
  return cuda;
}

// Returns the edge of number 0. REQUIRES: CloseCudaUnderTest was not called.
inline std::shared_ptr<CudaApi> CudaUnderTest() { return SharedCuda(); }

// Closes the edge. A program's main must call this last: after main, the libraries that the edge
// has loaded are gone before any static object of the program.
inline void CloseCudaUnderTest() { SharedCuda() = nullptr; }

// The number of GPUs, from number 0 on, that tests of this process have opened.
inline std::atomic<int>& OpenedGpusUnderTest() {
  static std::atomic<int> opened = 1;
  return opened;
}

inline absl::StatusOr<std::unique_ptr<Device>> OpenGpuUnderTest(int ordinal) {
  return CreateCudaDevice(ordinal == 0 ? CudaUnderTest() : OpenCudaApi(), ordinal);
}

// Returns true if CUDA refuses the calls on one of them from now on, as after an illegal address.
inline bool GpuUnderTestIsLost() {
  for (int ordinal = OpenedGpusUnderTest() - 1; ordinal >= 0; --ordinal) {  // 0 stays the thread's
    int64_t free_bytes = 0, total_bytes = 0;
    if (CudaUnderTest()->SetDevice(ordinal) != kCudaSuccess ||
        CudaUnderTest()->MemoryInfo(&free_bytes, &total_bytes) != kCudaSuccess) {
      return true;
    }
  }
  return false;
}

// Returns how many there are, from number 0 on, before the first that cannot be used.
inline int CountGpusUnderTest() {
  const std::unique_ptr<CudaApi> api = OpenCudaApi();
  int count = 0;
  while (FindCudaDevice(api.get(), count).ok()) ++count;
  return count;
}

// Returns how many of them a test or benchmark takes that takes all: a power of two, at most 8. 1:
// there are not several.
inline int SeveralGpusUnderTest() {
  int several = 1;
  while (several < 8 && several * 2 <= CountGpusUnderTest()) several *= 2;
  return several;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_

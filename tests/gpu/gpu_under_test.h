// The GPUs that the suites of this folder are run on, those of the edge that they are linked with
// (CUDA's own, or emulated_edge.cc): number 0, and for what several do together all from it on.
// Tests on number 0 share the edge, and with it the graphs that cuDNN takes half a second each to
// build.
#ifndef MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_
#define MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

// Returns the edge of number 0.
inline std::shared_ptr<CudaApi> CudaUnderTest() {
  static const std::shared_ptr<CudaApi> api = OpenCudaApi();
  return api;
}

inline absl::StatusOr<std::unique_ptr<Device>> OpenGpuUnderTest(int ordinal) {
  return CreateCudaDevice(ordinal == 0 ? CudaUnderTest() : OpenCudaApi(), ordinal);
}

// Returns true if CUDA refuses every call of this process from now on, as after an illegal address.
inline bool GpuUnderTestIsLost() {
  int64_t free_bytes = 0, total_bytes = 0;
  return CudaUnderTest()->SetDevice(0) != kCudaSuccess ||
         CudaUnderTest()->MemoryInfo(&free_bytes, &total_bytes) != kCudaSuccess;
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

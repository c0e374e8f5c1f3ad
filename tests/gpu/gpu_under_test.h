// The GPU that the suites of this folder are run on: number 0 of the edge that they are linked with
// (CUDA's own, or emulated_edge.cc). All tests of a process share the edge, and with it the graphs
// that cuDNN takes half a second each to build.
#ifndef MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_
#define MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

inline std::shared_ptr<CudaApi> CudaUnderTest() {
  static const std::shared_ptr<CudaApi> api = OpenCudaApi();
  return api;
}

inline absl::StatusOr<std::unique_ptr<Device>> OpenGpuUnderTest(int ordinal) {
  return CreateCudaDevice(CudaUnderTest(), ordinal);
}

// Returns true if CUDA refuses every call of this process from now on, as after an illegal address.
inline bool GpuUnderTestIsLost() {
  int64_t free_bytes = 0, total_bytes = 0;
  return CudaUnderTest()->SetDevice(0) != kCudaSuccess ||
         CudaUnderTest()->MemoryInfo(&free_bytes, &total_bytes) != kCudaSuccess;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_

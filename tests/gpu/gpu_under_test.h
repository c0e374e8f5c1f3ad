// The GPU that the suites of this folder are run on: number 0 of the edge that they are linked with
// (CUDA's own, or emulated_edge.cc).
#ifndef MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_
#define MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

inline absl::StatusOr<std::unique_ptr<Device>> OpenGpuUnderTest(int ordinal) {
  return CreateCudaDevice(OpenCudaApi(), ordinal);
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_

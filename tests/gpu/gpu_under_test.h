// The GPUs that the suites of this folder are run on, those of the edge that they are linked with
// (CUDA's own, or emulated_edge.cc): number 0, and for what several do together all from it on.
#ifndef MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_
#define MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/cuda_status.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

inline absl::StatusOr<std::unique_ptr<Device>> OpenGpuUnderTest(int ordinal) {
  return CreateCudaDevice(OpenCudaApi(), ordinal);
}

// Returns how many there are.
inline absl::StatusOr<int> CountGpusUnderTest() {
  const std::unique_ptr<CudaApi> api = OpenCudaApi();
  int count = 0;
  MT_RETURN_IF_ERROR(CudaStatus(*api, api->DeviceCount(&count), "cudaGetDeviceCount"));
  return count;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_GPU_GPU_UNDER_TEST_H_

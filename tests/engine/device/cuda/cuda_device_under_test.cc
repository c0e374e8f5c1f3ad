#include "engine/device/cuda/cuda_api.h"
#include "engine/device/cuda/cuda_device.h"
#include "tests/engine/device/device_under_test.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<Device>> MakeDeviceUnderTest(ThreadPool*) {
  absl::StatusOr<std::unique_ptr<CudaApi>> api = OpenCudaApi();
  if (!api.ok()) return api.status();
  return CreateCudaDevice(*std::move(api), 0);
}

}  // namespace megatrain

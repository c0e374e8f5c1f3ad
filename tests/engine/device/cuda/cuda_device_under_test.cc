#include "engine/device/cuda/open_cuda_device.h"
#include "tests/engine/device/device_under_test.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<Device>> MakeDeviceUnderTest(ThreadPool*) {
  return OpenCudaDevice(0);
}

}  // namespace megatrain

#include "engine/device/cuda/cuda_device.h"
#include "tests/engine/device/cuda/emulated_cuda.h"
#include "tests/engine/device/device_under_test.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<Device>> MakeDeviceUnderTest(ThreadPool*) {
  return CreateCudaDevice(std::make_unique<EmulatedCuda>(), 0);
}

}  // namespace megatrain

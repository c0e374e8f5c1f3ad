#include <cstdio>
#include <cstdlib>

#include "engine/device/cuda/cuda_device.h"
#include "tests/engine/device/cuda/emulated_cuda.h"
#include "tests/engine/device/device_under_test.h"

namespace megatrain {

std::unique_ptr<Device> MakeDeviceUnderTest(ThreadPool*) {
  absl::StatusOr<std::unique_ptr<Device>> device =
      CreateCudaDevice(std::make_unique<EmulatedCuda>(), 0);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    std::abort();
  }
  return *std::move(device);
}

}  // namespace megatrain

#include "tests/engine/device/device_under_test.h"
#include "tests/gpu/gpu_under_test.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<Device>> MakeDeviceUnderTest(ThreadPool*) {
  return OpenGpuUnderTest(0);
}

}  // namespace megatrain

#include "engine/device/cpu/cpu_device.h"
#include "tests/engine/device/device_under_test.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<Device>> MakeDeviceUnderTest(ThreadPool* pool) {
  return CreateCpuDevice(pool, {});
}

}  // namespace megatrain

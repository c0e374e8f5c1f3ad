// The device that a test is about: each target of the test is linked with one implementation.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_DEVICE_UNDER_TEST_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_DEVICE_UNDER_TEST_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/device/device.h"

namespace megatrain {

// `pool` outlives the device. NotFound or Unavailable: the machine has none, and the test is to be
// skipped with that reason.
absl::StatusOr<std::unique_ptr<Device>> MakeDeviceUnderTest(ThreadPool* pool);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_DEVICE_UNDER_TEST_H_

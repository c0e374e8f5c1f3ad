// The device that a test is about: each target of the test is linked with one implementation.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_DEVICE_UNDER_TEST_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_DEVICE_UNDER_TEST_H_

#include <memory>

#include "engine/base/thread_pool.h"
#include "engine/device/device.h"

namespace megatrain {

// `pool` outlives the device.
std::unique_ptr<Device> MakeDeviceUnderTest(ThreadPool* pool);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_DEVICE_UNDER_TEST_H_

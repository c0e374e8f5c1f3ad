// The cpu device: lanes are threads, device memory is an arena in host memory, the link is memcpy,
// optionally throttled.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_CPU_DEVICE_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_CPU_DEVICE_H_

#include <memory>

#include "engine/base/thread_pool.h"
#include "engine/device/device.h"

namespace megatrain {

struct CpuDeviceOptions {
  // Each direction of the link is held to this; 0 = as fast as memcpy goes. 1 GB = 1e9 bytes.
  double link_gigabytes_per_second = 0;
};

// `compute_pool` runs the kernels; it must outlive the device.
std::unique_ptr<Device> CreateCpuDevice(ThreadPool* compute_pool, const CpuDeviceOptions& options);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_CPU_DEVICE_H_

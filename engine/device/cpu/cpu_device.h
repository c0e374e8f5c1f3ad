// The cpu device. Its device memory is host memory, which need not be pinned. Copies are memcpy.
// CopyToDevice and CopyToHost can be slowed down to the speed of a link. Work is done when the call
// that queues it returns.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_CPU_DEVICE_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_CPU_DEVICE_H_

#include <memory>

#include "engine/base/thread_pool.h"
#include "engine/device/device.h"

namespace megatrain {

struct CpuDeviceOptions {
  // The speed of each copy over the simulated link, in GB (1e9 bytes) per second. Copies at the
  // same time do not slow each other down. 0 means as fast as memcpy.
  double link_gigabytes_per_second = 0;
};

// Creates the device. `compute_pool` runs the kernels. It must not be null and must outlive the
// device.
std::unique_ptr<Device> CreateCpuDevice(ThreadPool* compute_pool, const CpuDeviceOptions& options);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_CPU_DEVICE_H_

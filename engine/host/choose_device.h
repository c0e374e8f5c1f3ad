// The one place that decides which device a process trains on.
#ifndef MEGATRAIN_ENGINE_HOST_CHOOSE_DEVICE_H_
#define MEGATRAIN_ENGINE_HOST_CHOOSE_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/device/gpu_opener.h"

namespace megatrain {

inline constexpr char kCpuDeviceId[] = "cpu";

struct ChosenDevice {
  std::string id = kCpuDeviceId;  // or "cuda:0"
  std::shared_ptr<Device> gpu;    // null: the cpu device, which each session sets up on its threads
  std::string why_cpu;            // why auto took the cpu; empty otherwise
};

// What `name` (auto, cpu, cuda, cuda:N) means on this machine, set up. auto is the first GPU, or
// the cpu where the opener finds nothing to use; a GPU that is there and cannot be used is an
// error. `open_gpu` may be null: there is none. Errors name `key`: InvalidArgument for a name that
// means nothing, FailedPrecondition for what this machine has not, or not in order.
absl::StatusOr<ChosenDevice> ChooseDevice(const std::string& key, const std::string& name,
                                          const GpuOpener& open_gpu);

// OK if a job that asks for `name` may run where the device is `host_id`. InvalidArgument names
// engine.device.
absl::Status CheckJobDevice(const std::string& name, const std::string& host_id);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_CHOOSE_DEVICE_H_

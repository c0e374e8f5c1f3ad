// Chooses the device on which a process trains.
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
  std::shared_ptr<Device> gpu;    // null for the cpu device, which each session creates itself
  std::string why_cpu;            // why `auto` chose the cpu; empty otherwise
};

// Opens the device that `name` (auto, cpu, cuda or cuda:N) means on this machine. `auto` is the
// first GPU, or the cpu if `open_gpu` finds none. A GPU that is there but cannot be used is an
// error. A null `open_gpu` means that there is no GPU. It is used during the call only.
//
// Messages begin with `key`. Returns InvalidArgument for an unknown name and FailedPrecondition if
// the machine does not have the device or its driver is not in order. Other errors of `open_gpu`,
// such as lack of memory, are returned as they are.
absl::StatusOr<ChosenDevice> ChooseDevice(const std::string& key, const std::string& name,
                                          const GpuOpener& open_gpu);

// Checks that a job whose engine.device is `name` may run on the device `host_id`. Returns
// InvalidArgument if not.
absl::Status CheckJobDevice(const std::string& name, const std::string& host_id);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_CHOOSE_DEVICE_H_

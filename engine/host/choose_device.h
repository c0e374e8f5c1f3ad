// Chooses the device on which a process trains.
#ifndef MEGATRAIN_ENGINE_HOST_CHOOSE_DEVICE_H_
#define MEGATRAIN_ENGINE_HOST_CHOOSE_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/device/gpu_opener.h"
#include "engine/host/host_devices.h"

namespace megatrain {

struct ChosenDevice {
  std::string id = kCpuDeviceId;  // or "cuda:0", the first GPU
  // In the order of their numbers. Empty for the cpu device, which each session creates itself.
  std::vector<std::shared_ptr<Device>> gpus;
  std::string why_cpu;  // why `auto` chose the cpu; empty otherwise
};

// The GPUs of a process, among those from the one that its device names on.
struct GpuChoice {
  int count = 1;  // 0 = all
  // The number of this process among the processes of a job on this machine, which have a GPU each.
  // If only one GPU is visible, a launcher has chosen it for this process.
  int process = 0;
};

// Opens the device that `name` (auto, cpu, cuda or cuda:N) means on this machine. `auto` is the
// first GPU, or the cpu if `open_gpu` finds none. A GPU that is there but cannot be used is an
// error. A null `open_gpu` means that there is no GPU. It is used during the call only.
//
// Several GPUs are that one and those of the numbers after it, in this order.
//
// Messages begin with `key`. Returns InvalidArgument for an unknown name and FailedPrecondition if
// the machine does not have the device or its driver is not in order. Other errors of `open_gpu`,
// such as lack of memory, are returned as they are.
absl::StatusOr<ChosenDevice> ChooseDevice(const std::string& key, const std::string& name,
                                          const GpuOpener& open_gpu, const GpuChoice& choice = {});

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_CHOOSE_DEVICE_H_

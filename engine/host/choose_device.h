// Chooses and opens the devices on which a process trains.
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

// The cpu device, or the GPUs of a process.
struct ChosenDevice {
  std::string id = kCpuDeviceId;  // or that of gpus[0], as "cuda:0"
  // In the order of their numbers. Empty for the cpu device, which each session creates itself.
  std::vector<std::shared_ptr<Device>> gpus;
  std::string why_cpu;  // why `auto` chose the cpu; empty otherwise
};

// The GPUs of a process: `count` of them from number N + `process` on. N is the number in the
// device's name ("cuda:N"), or else 0.
struct GpuChoice {
  int count = 1;  // 0 = all from there on
  // The number of this process among the processes of a job on this machine, which have a GPU each.
  // If `process` is above 0 and only GPU number N is visible, the process takes that one, because a
  // launcher has then chosen it.
  int process = 0;
};

// Opens the device that `name` (auto, cpu, cuda or cuda:N) means on this machine. `auto` is the
// process's first GPU, or the cpu if `open_gpu` returns NotFound. A GPU that is there but cannot be
// used is an error. A null `open_gpu` means that there is no GPU; it is used during the call only.
//
// `key` is the configuration key of `name`; messages begin with it. Returns InvalidArgument for an
// unknown name, if there are GPUs but not the first one of this process, and for an environment
// variable with a wrong value. Returns FailedPrecondition if cuda is asked for and there is no GPU,
// if there are fewer than choice.count, or if the driver or a library is not in order (Unavailable
// of `open_gpu`). Other errors of `open_gpu`, such as lack of memory, keep their codes. REQUIRES:
// choice.count >= 0, choice.process >= 0.
absl::StatusOr<ChosenDevice> ChooseDevice(const std::string& key, const std::string& name,
                                          const GpuOpener& open_gpu, const GpuChoice& choice = {});

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_CHOOSE_DEVICE_H_

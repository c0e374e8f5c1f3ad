// HostDevices: the devices of a host by number, and what a job wants of them.
#ifndef MEGATRAIN_ENGINE_HOST_HOST_DEVICES_H_
#define MEGATRAIN_ENGINE_HOST_HOST_DEVICES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace megatrain {

inline constexpr char kCpuDeviceId[] = "cpu";
inline constexpr int kUnknownDevices = 0;  // HostDevices::count if it is not known

// The devices of a host, numbered from 0, which jobs have one by one or several together: GPUs, or
// equal parts of the cpu's threads.
struct HostDevices {
  std::string first = kCpuDeviceId;  // "cpu", or the first GPU, as "cuda:0"
  int count = 1;                     // or kUnknownDevices
  // By number, the device memory that a job may plan with. Empty if it is not known, or if the
  // devices use host memory.
  std::vector<int64_t> bytes = {};

  // Returns "cuda:N".
  static std::string CudaId(int ordinal) { return absl::StrCat("cuda:", ordinal); }
  // Returns the name of device `number`, for people: "cuda:1"; "cpu", or "cpu:1" if there are
  // several. Number 0 of a host whose `first` is "cuda:2" is "cuda:2".
  std::string Name(int number) const;
  // Returns the numbers of all devices in groups of about equal memory, the least first. Without
  // `bytes` all devices are one group. Joined, the groups are the order in which jobs that name no
  // device get them, so that the large ones are left to those that need them. REQUIRES: count is
  // known.
  std::vector<std::vector<int>> ByMemory() const;
};

// Returns true if the largest of these memories exceeds the least by more than a tenth. Equal
// devices differ a little too in what is free. REQUIRES: `bytes` is not empty.
bool IsUnequal(absl::Span<const int64_t> bytes);

// DeviceClaim says which of a host's devices a job wants.
struct DeviceClaim {
  int count = 1;
  int first = -1;  // the number of the first of them on the host; -1 = any
};

// Returns the claim of a job whose engine.device is `device` and engine.devices is `devices` (0 =
// all). A job that asks for more cpu devices than the host has claims all of those and divides them
// further (ChooseSession). Returns InvalidArgument for a device that is not the host's, for more
// GPUs than it has from the named one on, and for all GPUs if their number is unknown. If the
// number is unknown, no GPU but the first may be named. REQUIRES: devices >= 0.
absl::StatusOr<DeviceClaim> ClaimDevices(const std::string& device, int64_t devices,
                                         const HostDevices& host);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_HOST_DEVICES_H_

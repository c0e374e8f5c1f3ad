// HostDevices: the devices of a host by number, and what a job wants of them.
#ifndef MEGATRAIN_ENGINE_HOST_HOST_DEVICES_H_
#define MEGATRAIN_ENGINE_HOST_HOST_DEVICES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

inline constexpr char kCpuDeviceId[] = "cpu";
inline constexpr int kUnknownDevices = 0;

// The devices of a host, numbered from 0, which jobs have one by one or several together: GPUs, or
// equal parts of the cpu's threads.
struct HostDevices {
  std::string first = kCpuDeviceId;  // "cpu", or the first GPU, as "cuda:0"
  int count = 1;                     // or kUnknownDevices

  // Returns "cuda:N".
  static std::string CudaId(int ordinal) { return absl::StrCat("cuda:", ordinal); }
  // Returns the name of a device, for people: "cuda:1"; "cpu", or "cpu:1" if there are several.
  std::string Name(int number) const;
};

// DeviceClaim says which of a host's devices a job wants.
struct DeviceClaim {
  int count = 1;
  int first = -1;  // the number of the first of them on the host; -1 = any
};

// Returns the claim of a job with these engine.device and engine.devices (0 = all). A job that asks
// for more cpu devices than the host has gets all of those and divides them further. Returns
// InvalidArgument for a device that is not the host's and for more GPUs than it has, or for all of
// an unknown number.
absl::StatusOr<DeviceClaim> ClaimDevices(const std::string& device, int64_t devices,
                                         const HostDevices& host);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_HOST_DEVICES_H_

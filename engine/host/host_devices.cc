#include "engine/host/host_devices.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/job/device_name.h"

namespace megatrain {
namespace {

using Kind = DeviceName::Kind;

}  // namespace

std::string HostDevices::Name(int number) const {
  const std::optional<DeviceName> name = ParseDeviceName(first);
  if (name.has_value() && name->kind == Kind::kCuda) return CudaId(name->ordinal + number);
  return count > 1 ? absl::StrCat(first, ":", number) : first;
}

std::vector<std::vector<int>> HostDevices::ByMemory() const {
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  if (bytes.empty()) return {all};
  std::stable_sort(all.begin(), all.end(), [this](int a, int b) { return bytes[a] < bytes[b]; });
  std::vector<std::vector<int>> groups;
  for (const int number : all) {
    if (groups.empty() || IsUnequal({bytes[groups.back().front()], bytes[number]})) {
      groups.emplace_back();
    }
    groups.back().push_back(number);
  }
  for (std::vector<int>& group : groups) std::sort(group.begin(), group.end());
  return groups;
}

bool IsUnequal(absl::Span<const int64_t> bytes) {
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  return *most > *least + *least / 10;
}

absl::StatusOr<DeviceClaim> ClaimDevices(const std::string& device, int64_t devices,
                                         const HostDevices& host) {
  const std::optional<DeviceName> asked = ParseDeviceName(device);
  const bool is_cpu = host.first == kCpuDeviceId;
  DeviceClaim claim;
  bool had =
      asked.has_value() && (asked->kind == Kind::kAuto || (asked->kind == Kind::kCpu) == is_cpu);
  if (had && asked->kind == Kind::kCuda && asked->ordinal >= 0) {
    claim.first = asked->ordinal - ParseDeviceName(host.first)->ordinal;
    had = claim.first >= 0 && claim.first < std::max(1, host.count);
  }
  if (!had) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine.device: ", device,
        host.count > 1 ? " is not among the devices that jobs are trained on here, "
                       : " is not the device that jobs are trained on here, which is ",
        host.first, host.count > 1 ? absl::StrCat(" to ", host.Name(host.count - 1)) : "",
        "; write auto or ", host.first));
  }
  if (is_cpu) {
    const int parts = std::max(1, host.count);
    claim.count = devices == 0 ? parts : static_cast<int>(std::min<int64_t>(devices, parts));
    return claim;
  }
  if (devices == 0 && host.count == kUnknownDevices) {
    return absl::InvalidArgumentError(
        "engine.devices: all: it is not known how many GPUs there are where the job will run; "
        "write the number");
  }
  const int from = std::max(0, claim.first);
  claim.count = devices == 0 ? host.count - from : static_cast<int>(devices);
  if (host.count == kUnknownDevices || claim.count <= host.count - from) return claim;
  const int most = host.count - from;
  return absl::InvalidArgumentError(absl::StrCat(
      "engine.devices: a job has at most ", most == 1 ? "one GPU" : absl::StrCat(most, " GPUs"),
      " here, from ", host.Name(from), " on, not ", devices, "; use at most ", most,
      ", or train it with `megatraind run`, which takes as many as the job asks for"));
}

}  // namespace megatrain

#include "engine/host/choose_device.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/device/device_lost.h"
#include "engine/job/device_name.h"

namespace megatrain {
namespace {

using Kind = DeviceName::Kind;

absl::StatusOr<std::unique_ptr<Device>> Open(const GpuOpener& open_gpu, int ordinal) {
  if (open_gpu == nullptr) return absl::NotFoundError("cuda: this program has none");
  return open_gpu(ordinal);
}

// Opens the GPU of GpuChoice::process, and adds to `first` what lies between.
absl::StatusOr<std::unique_ptr<Device>> OpenOfProcess(const GpuOpener& open_gpu, int process,
                                                      int& first) {
  absl::StatusOr<std::unique_ptr<Device>> gpu = Open(open_gpu, first + process);
  if (process > 0 && absl::IsInvalidArgument(gpu.status())) {
    const bool one_is_visible =
        process == 1 || absl::IsInvalidArgument(Open(open_gpu, first + 1).status());
    if (one_is_visible) return Open(open_gpu, first);
    return absl::InvalidArgumentError(
        absl::StrCat(gpu.status().message(), ", and this is process ", process,
                     " (from 0) of the job on this machine; start as many as there are GPUs"));
  }
  first += process;
  return gpu;
}

// Converts the opener's error. Only `auto` distinguishes NotFound and Unavailable; otherwise each
// means that this machine must be set right or another device named. Lack of memory and CUDA's own
// failures stay as they are.
absl::Status AsAsked(const std::string& key, const absl::Status& status) {
  const std::string text = absl::StrCat(key, ": ", status.message());
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnavailable:
      return absl::FailedPreconditionError(text);
    default:
      return IsDeviceLost(status) ? DeviceLostError(text) : absl::Status(status.code(), text);
  }
}

}  // namespace

absl::StatusOr<ChosenDevice> ChooseDevice(const std::string& key, const std::string& name,
                                          const GpuOpener& open_gpu, const GpuChoice& choice) {
  const std::optional<DeviceName> asked = ParseDeviceName(name);
  if (!asked.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": expects ", kDeviceNames, ", got ", name));
  }
  ChosenDevice chosen;
  if (asked->kind == Kind::kCpu) return chosen;
  int first = std::max(0, asked->ordinal);
  absl::StatusOr<std::unique_ptr<Device>> gpu = OpenOfProcess(open_gpu, choice.process, first);
  if (gpu.ok()) {
    chosen.id = HostDevices::CudaId(first);
    chosen.gpus.push_back(*std::move(gpu));
    for (int i = 1; i < choice.count || choice.count == 0; ++i) {
      gpu = Open(open_gpu, first + i);
      if (choice.count == 0 && absl::IsInvalidArgument(gpu.status())) break;
      if (!gpu.ok()) {
        const absl::Status status =
            AsAsked(absl::StrCat(key, ": ", chosen.id, " is the first of ",
                                 choice.count == 0 ? "all" : absl::StrCat(choice.count), " GPUs (",
                                 key, "s)"),
                    gpu.status());
        // It may be there again later.
        return absl::IsInvalidArgument(status) ? absl::FailedPreconditionError(status.message())
                                               : status;
      }
      chosen.gpus.push_back(*std::move(gpu));
    }
    return chosen;
  }
  if (asked->kind == Kind::kAuto && absl::IsNotFound(gpu.status())) {
    chosen.why_cpu = std::string(gpu.status().message());
    return chosen;
  }
  return AsAsked(key, gpu.status());
}

}  // namespace megatrain

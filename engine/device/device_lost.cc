#include "engine/device/device_lost.h"

#include "absl/strings/cord.h"

namespace megatrain {
namespace {
constexpr char kPayload[] = "megatrain/device-lost";
}  // namespace

absl::Status DeviceLostError(std::string_view message) {
  absl::Status status = absl::InternalError(absl::string_view(message.data(), message.size()));
  status.SetPayload(kPayload, absl::Cord());
  return status;
}

bool IsDeviceLost(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

}  // namespace megatrain

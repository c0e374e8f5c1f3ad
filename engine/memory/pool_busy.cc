#include "engine/memory/pool_busy.h"

#include "absl/strings/cord.h"

namespace megatrain {
namespace {
constexpr char kPayload[] = "megatrain/pool-busy";
}  // namespace

absl::Status PoolBusyError(std::string_view message) {
  absl::Status status =
      absl::ResourceExhaustedError(absl::string_view(message.data(), message.size()));
  status.SetPayload(kPayload, absl::Cord());
  return status;
}

bool IsPoolBusy(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

}  // namespace megatrain

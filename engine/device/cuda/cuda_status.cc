#include "engine/device/cuda/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/device/device_lost.h"

namespace megatrain {
namespace {

// After these the context answers every call with the same error (the runtime's manual on each).
bool IsSticky(int error) {
  constexpr int kFirst = 700,
                kLast = 720;  // cudaErrorIllegalAddress to cudaErrorLaunchFailure's kin
  constexpr int kEccUncorrectable = 214, kContained = 721, kExternal = 999;
  constexpr int kNvlinkUncorrectable = 220;
  return (error >= kFirst && error <= kLast) || error == kEccUncorrectable ||
         error == kNvlinkUncorrectable || error == kContained || error == kExternal;
}

}  // namespace

absl::Status CudaStatus(const CudaApi& api, int error, const char* call) {
  if (error == kCudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat("cuda: ", call, ": ", api.Describe(error));
  if (error == kCudaMemoryAllocation) return absl::ResourceExhaustedError(text);
  if (IsSticky(error)) return DeviceLostError(text);
  return absl::InternalError(text);
}

}  // namespace megatrain

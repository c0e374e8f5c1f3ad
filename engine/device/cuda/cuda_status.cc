#include "engine/device/cuda/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/device/device_lost.h"

namespace megatrain {
namespace {

// After these the context answers every call with the same error, or the device is not to be
// trusted: the runtime's manual asks for the process to be ended (driver_types.h on each).
bool IsSticky(int error) {
  switch (error) {
    case 214:  // cudaErrorECCUncorrectable
    case 220:  // cudaErrorNvlinkUncorrectable
    case 226:  // cudaErrorContained
    case 700:  // cudaErrorIllegalAddress
    case 702:  // cudaErrorLaunchTimeout
    case 709:  // cudaErrorContextIsDestroyed
    case 710:  // cudaErrorAssert
    case 714:  // cudaErrorHardwareStackError
    case 715:  // cudaErrorIllegalInstruction
    case 716:  // cudaErrorMisalignedAddress
    case 717:  // cudaErrorInvalidAddressSpace
    case 718:  // cudaErrorInvalidPc
    case 719:  // cudaErrorLaunchFailure
    case 721:  // cudaErrorTensorMemoryLeak
    case 999:  // cudaErrorUnknown: what a device that has fallen off the bus gives
      return true;
    default:
      return false;
  }
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

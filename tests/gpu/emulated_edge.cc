// The edges to CUDA and to NCCL of the emulated programs. There are as many GPUs as
// MEGATRAIN_EMULATED_GPUS says, or one. MEGATRAIN_EMULATED_FAULTS makes them go wrong, in a list
// such as "Product=nan,CopyToHost=700!@5,heads=hang":
//
//   METHOD=ERROR      a method of CudaApi (and Launch, of any kernel) gives this error; with "!"
//   all
//                     methods do from then on. DeviceCount=100: no GPU. LoadLibraries=1: no
//                     cuBLASLt.
//   METHOD=hang|crash
//   Product=wrong|nan|unsteady
//   Attention=wrong   cuDNN takes attention in BF16 and gives zeros
//   KERNEL=wrong|unsteady|hang|crash   all kernels of engine/device/cuda/kernels/KERNEL.cu
//   vector_loads=wrong|nan
//   cudnn=none        cuDNN is not found
//   nccl=none         NCCL is not found
//
// and of methods, behind all of these, "@N": from the N-th call on, counted from 0.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "tests/engine/comm/fake_nccl.h"
#include "tests/engine/device/cuda/emulated_cuda.h"
#include "tests/engine/device/cuda/emulation.h"

namespace megatrain {
namespace {

constexpr char kVariable[] = "MEGATRAIN_EMULATED_FAULTS";
constexpr char kNoNccl[] = "nccl=none";
constexpr char kGpusVariable[] = "MEGATRAIN_EMULATED_GPUS";

std::vector<std::string> Faults() {
  const char* const faults = std::getenv(kVariable);
  return absl::StrSplit(faults != nullptr ? faults : "", ',', absl::SkipEmpty());
}

int Gpus() {
  const char* const text = std::getenv(kGpusVariable);
  int gpus = 1;
  if (text == nullptr || absl::SimpleAtoi(text, &gpus)) return gpus;
  std::fprintf(stderr, "%s: %s is not a number\n", kGpusVariable, text);
  std::exit(2);
}

[[noreturn]] void Refuse(const std::string& fault) {
  std::fprintf(stderr, "%s: %s is not a fault\n", kVariable, fault.c_str());
  std::exit(2);
}

void FailMethod(EmulatedCuda& cuda, const std::string& method, const std::string& kind,
                const std::string& fault) {
  const std::map<absl::string_view, int> kinds = {{"hang", kEmulatedHang},
                                                  {"crash", kEmulatedCrash},
                                                  {"wrong", kEmulatedWrong},
                                                  {"nan", kEmulatedNan},
                                                  {"unsteady", kEmulatedUnsteady}};
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(kind, '@');
  absl::string_view what = parts.first;
  const bool sticky = absl::ConsumeSuffix(&what, "!");
  int after = 0, error = 0;
  if (!parts.second.empty() && !absl::SimpleAtoi(parts.second, &after)) Refuse(fault);
  if (const auto found = kinds.find(what); found != kinds.end()) {
    error = found->second;
    const bool possible = method == "Product" || (method == "Attention" && what == "wrong");
    if (error <= kEmulatedWrong && !possible) Refuse(fault);
  } else if (!absl::SimpleAtoi(what, &error) || error <= 0) {
    Refuse(fault);
  }
  cuda.Fail(method, error, after, sticky);
}

void FailKernel(const std::string& place, const std::string& kind, const std::string& fault) {
  using cuda::KernelFault;
  const std::map<std::string, KernelFault> kinds = {{"wrong", KernelFault::kWrong},
                                                    {"nan", KernelFault::kNan},
                                                    {"unsteady", KernelFault::kUnsteady},
                                                    {"hang", KernelFault::kHang},
                                                    {"crash", KernelFault::kCrash}};
  const auto found = kinds.find(kind);
  if (found == kinds.end()) Refuse(fault);
  const bool loads = place == "vector_loads";
  const bool possible =
      loads ? found->second == KernelFault::kWrong || found->second == KernelFault::kNan
            : found->second != KernelFault::kNan;
  if (!possible) Refuse(fault);
  cuda::SetKernelFault(place, found->second);
}

}  // namespace

std::unique_ptr<CudaApi> OpenCudaApi() {
  std::vector<std::string> list = Faults();
  const bool cudnn = std::erase(list, "cudnn=none") == 0;
  std::erase(list, kNoNccl);
  // The machine's, as the host's memory is.
  static const auto& pinned = *new auto(std::make_shared<EmulatedPinned>());
  auto cuda = std::make_unique<EmulatedCuda>(
      EmulatedCudaOptions{.devices = Gpus(), .cudnn = cudnn, .pinned = pinned});
  for (const std::string& fault : list) {
    const std::pair<std::string, std::string> sides =
        absl::StrSplit(fault, absl::MaxSplits('=', 1));
    // Methods begin with a capital, files do not.
    if (!sides.first.empty() && sides.first[0] >= 'A' && sides.first[0] <= 'Z') {
      FailMethod(*cuda, sides.first, sides.second, fault);
    } else {
      FailKernel(sides.first, sides.second, fault);
    }
  }
  return cuda;
}

absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl() {
  const std::vector<std::string> faults = Faults();
  if (std::find(faults.begin(), faults.end(), kNoNccl) == faults.end()) {
    return std::make_unique<FakeNccl>();
  }
  return absl::UnavailableError("no library of exchanges; install it");
}

}  // namespace megatrain

#include "engine/device/cuda/libraries/cuda_switches.h"

#include <cstdlib>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace megatrain {

absl::StatusOr<CudaSwitches> ReadCudaSwitches() {
  CudaSwitches switches;
  struct Switch {
    const char* variable;
    bool* on;
  };
  for (const Switch& s :
       {Switch{kCudnnSwitch, &switches.cudnn},
        Switch{"MEGATRAIN_TENSOR_CORE_ATTENTION", &switches.kernels.tensor_core_attention},
        Switch{"MEGATRAIN_VECTOR_LOADS", &switches.kernels.vector_loads},
        Switch{"MEGATRAIN_SPLIT_SUMS", &switches.kernels.split_sums}}) {
    const char* const value = std::getenv(s.variable);
    if (value == nullptr) continue;
    if (std::string_view(value) != "off") {
      return absl::InvalidArgumentError(absl::StrCat(s.variable, ": expects off, got '", value,
                                                     "'; unset it to have what it sets aside"));
    }
    *s.on = false;
  }
  return switches;
}

std::string DescribeSetAside(const CudaSwitches& switches) {
  std::vector<std::string> aside;
  if (!switches.kernels.tensor_core_attention) aside.push_back("tensor-core attention");
  if (!switches.kernels.vector_loads) aside.push_back("vector loads");
  if (!switches.kernels.split_sums) aside.push_back("split sums");
  if (aside.empty()) return "";
  return absl::StrCat(", without ", absl::StrJoin(aside, ", "), " (set aside by the environment)");
}

}  // namespace megatrain

// Machines by name, for plans of what is not at hand. Their rates are derived from data sheets, in
// machine_profile.cc; nothing of it was measured with this program's kernels.
#ifndef MEGATRAIN_ENGINE_HOST_MACHINE_PROFILE_H_
#define MEGATRAIN_ENGINE_HOST_MACHINE_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/host/hardware_rates.h"

namespace megatrain {

struct MachineProfile {
  std::string name;         // "h200"
  std::string description;  // for people: the device, its link and the host's memory
  // Device memory that a program finds free there. What a session leaves free of it, a plan takes
  // off (MemoryBudget::SetDevice).
  int64_t device_bytes = 0;
  HardwareRates rates{};
};

std::vector<std::string> MachineProfileNames();

// InvalidArgument names those that there are.
absl::StatusOr<MachineProfile> FindMachineProfile(const std::string& name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_MACHINE_PROFILE_H_

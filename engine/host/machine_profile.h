// Machines by name, for planning a job for a machine that is not at hand. Their rates are derived
// from data sheets in machine_profile.cc; none was measured with this program's kernels.
#ifndef MEGATRAIN_ENGINE_HOST_MACHINE_PROFILE_H_
#define MEGATRAIN_ENGINE_HOST_MACHINE_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/host/hardware_rates.h"

namespace megatrain {

// A machine's device memory and rates.
struct MachineProfile {
  std::string name;         // "h200"
  std::string description;  // for people: the device, its link and the host's memory
  // Device memory that is free for a program. A plan subtracts what a session leaves free
  // (MemoryBudget::SetDevice).
  int64_t device_bytes = 0;
  HardwareRates rates{};
};

// Returns the names of all profiles.
std::vector<std::string> MachineProfileNames();

// Returns the profile of this name. rates.network_bytes_per_second is 0 (not known). Returns
// InvalidArgument, listing all names, for an unknown one. The message begins with "--profile".
absl::StatusOr<MachineProfile> FindMachineProfile(const std::string& name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_MACHINE_PROFILE_H_

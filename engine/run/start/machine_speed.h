// SpeedOf tells step prediction how fast the machine is for one rank of a session.
#ifndef MEGATRAIN_ENGINE_RUN_START_MACHINE_SPEED_H_
#define MEGATRAIN_ENGINE_RUN_START_MACHINE_SPEED_H_

#include "engine/host/hardware_rates.h"
#include "engine/host/session.h"
#include "engine/plan/step_prediction.h"

namespace megatrain {

// Combines measured `rates` with the limits in `settings`: the threads of one rank, and the speed
// of the link. `rates` may be unmeasured.
inline MachineSpeed SpeedOf(const SessionSettings& settings, const HardwareRates& rates) {
  MachineSpeed machine;
  machine.rates = rates;
  machine.resources.threads = settings.rank_threads();
  machine.resources.update_threads = settings.rank_update_threads();
  machine.resources.link_bytes_per_second_max = settings.link_gigabytes_per_second * 1e9;
  return machine;
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_MACHINE_SPEED_H_

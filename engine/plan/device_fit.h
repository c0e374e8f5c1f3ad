// How a step is fitted into the device's memory: gradient slabs and kept activations for a sweep
// size and a place of the stash, and the rule that chooses those where no times are known.
#ifndef MEGATRAIN_ENGINE_PLAN_DEVICE_FIT_H_
#define MEGATRAIN_ENGINE_PLAN_DEVICE_FIT_H_

#include <cstdint>

#include "engine/device/kernel_sizes.h"
#include "engine/job/job_spec.h"
#include "engine/pipeline/buffers.h"
#include "engine/plan/simulated_executor.h"

namespace megatrain {

// Device bytes of these dimensions, through the code that reserves them.
int64_t DeviceBytes(const PipelineDimensions& d, const KernelSizes& sizes);

// Gives `d` sweeps of so many micro-batches, the stash's place, the slabs that those need, and as
// many kept activations as `limit` bytes of the device hold beside the rest: of what there is room
// for, what saves the most seconds of recomputation at the rates of `profile`; where those are not
// known (nullptr) the cheap pieces are recomputed before anything dear is. Returns whether all of
// it fits into `limit`.
bool FitDevice(const JobSpec& spec, const KernelSizes& sizes, int64_t limit, int sweep,
               bool on_host, PipelineDimensions& d, const HardwareProfile* profile = nullptr);

// The rule: as few sweeps as possible, then the stash on the device, then on the host. If nothing
// fits, the smallest is left in `d`, so that the refusal shows the least that would be needed.
bool FitDeviceByRule(const JobSpec& spec, const KernelSizes& sizes, int64_t limit,
                     PipelineDimensions& d);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_DEVICE_FIT_H_

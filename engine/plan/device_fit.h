// Fits a step into the device's memory. FitDevice chooses gradient slabs and kept activations for a
// given sweep size and place of the stash. FitDeviceByRule also chooses the sweep size and the
// place, for machines whose speed is not known.
#ifndef MEGATRAIN_ENGINE_PLAN_DEVICE_FIT_H_
#define MEGATRAIN_ENGINE_PLAN_DEVICE_FIT_H_

#include <cstdint>

#include "engine/device/kernel_sizes.h"
#include "engine/job/job_spec.h"
#include "engine/pipeline/buffers.h"
#include "engine/plan/simulated_executor.h"

namespace megatrain {

// Returns the device bytes that these dimensions take, counted by a dry run of ReserveDeviceBuffers
// (engine/pipeline/buffers.h), with the workspace of the streams and the scratch for exchange.
// Returns INT64_MAX if they are more than that.
int64_t DeviceBytes(const PipelineDimensions& d, const KernelSizes& sizes);

// Fits sweeps of `sweep` micro-batches into `limit` bytes of device memory, with the stash on the
// host if `on_host`, else on the device. Sets these two in `d`, the gradient slabs that they need,
// and the activations that are kept for the backward pass: those that engine.recompute fixes, or as
// many as fit besides the rest. Returns true if everything fits; `d` is set in both cases.
//
// As many pairs of layer and micro-batch as possible keep all activations but those that are cheap
// to recompute. Then as many of these pairs as possible keep all. With `lane_rates` the other order
// is tried too, and the one that saves more seconds of recomputation is taken. REQUIRES, here and
// below: the other fields of `d` are set. Here: `sweep` is allowed (PipelineShape::sweeps_max).
bool FitDevice(const JobSpec& spec, const KernelSizes& sizes, int64_t limit, int sweep,
               bool on_host, PipelineDimensions& d, const LaneRates* lane_rates = nullptr);

// Chooses the largest sweep that fits, and for that sweep the stash on the device if it fits there,
// otherwise on the host. Sets in `d` what FitDevice sets for this choice. What `spec` fixes is not
// changed. Returns false if nothing fits; `d` then has the smallest sweep that is allowed, with the
// stash on the host if that is allowed, so that the refusal shows how much memory is needed.
bool FitDeviceByRule(const JobSpec& spec, const KernelSizes& sizes, int64_t limit,
                     PipelineDimensions& d);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_DEVICE_FIT_H_

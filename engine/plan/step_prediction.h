// Predicts how long a planned step takes on a machine whose rates were measured or are from data
// sheets (MachineProfile), by running its schedule on the virtual clock of simulated_executor.h.
// The prediction is an estimate: the rates of products and attention are measured at one size each,
// and other kernels are timed by the bytes that they touch. Each kernel's launch counts too.
// Launches take more than 2% of a step only below about 1.5 billion parameters, so the engine has
// no CUDA graphs.
#ifndef MEGATRAIN_ENGINE_PLAN_STEP_PREDICTION_H_
#define MEGATRAIN_ENGINE_PLAN_STEP_PREDICTION_H_

#include "engine/host/hardware_rates.h"
#include "engine/pipeline/buffers.h"
#include "engine/pipeline/schedule/lane.h"
#include "engine/plan/simulated_executor.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// The resources that each rank of the job uses.
struct StepResources {
  int threads = 1;                       // all threads, including update_threads
  int update_threads = 0;                // for the optimizer alone; 0 if it shares the others
  double link_bytes_per_second_max = 0;  // limit for each direction; 0 = none
};

// The predicted time of a training step.
struct StepPrediction {
  double step_seconds = 0;       // for a step among others, in the steady state
  double tokens_per_second = 0;  // of all ranks, for sequences without padding
  // Copies count for h2d and d2h, whichever lane makes them. device_update is 0.
  LaneSeconds lane_busy_seconds;
  // The busiest of kH2D, kCompute, kD2H, kUpdate and kCollective. Device updates and io are not
  // compared.
  Lane bound_by = Lane::kCompute;
};

// The machine's rates and the part of the machine that each rank of the job uses.
struct MachineSpeed {
  HardwareRates rates;
  StepResources resources;
};

// Returns the rates of the lanes for a job of this precision and number of ranks. Where the rate
// between machines is known, each process stands for a machine. The disk's rate is 1, which
// is never used: steps write nothing there. REQUIRES: 0 <= update_threads < threads, and the rates
// of dimensions.dtype are known.
LaneRates LaneRatesOf(const PipelineDimensions& dimensions, const MachineSpeed& machine);

// Predicts a training step of the plan's decisions. This takes milliseconds as a rule:
// micro-batches and pieces of updates on the device are merged, so that the time grows with the
// tiles alone. The same arguments give the same prediction. REQUIRES: those of LaneRatesOf, and
// dimensions.training.
StepPrediction PredictStep(const PipelineDimensions& dimensions, const MachineSpeed& machine);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_STEP_PREDICTION_H_

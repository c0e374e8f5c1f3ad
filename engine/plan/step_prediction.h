// How long a planned step will take on a machine of measured rates: its schedule, run on the
// virtual clock. An estimate: the rates of products and attention are those of one size each,
// everything else goes by the bytes that it touches.
#ifndef MEGATRAIN_ENGINE_PLAN_STEP_PREDICTION_H_
#define MEGATRAIN_ENGINE_PLAN_STEP_PREDICTION_H_

#include "engine/host/hardware_rates.h"
#include "engine/pipeline/buffers.h"
#include "engine/pipeline/lane.h"
#include "engine/plan/simulated_executor.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// What the job does with the machine.
struct StepResources {
  int threads = 1;         // all
  int update_threads = 0;  // of them set apart for the optimizer; 0: it shares compute's
  double link_bytes_per_second_max = 0;  // each direction is throttled to this; 0 = not
};

struct StepPrediction {
  double step_seconds = 0;       // of a whole step, others before and behind it
  double tokens_per_second = 0;  // of sequences without padding
  LaneSeconds lane_busy_seconds;
  Lane bound_by = Lane::kCompute;  // the busiest lane
};

struct MachineSpeed {
  HardwareRates rates;
  StepResources resources;
};

// The rates of the lanes for a job of this precision.
HardwareProfile ProfileOf(DType dtype, const MachineSpeed& machine);

// The same arguments give the same prediction; a moment's work for models of any size.
// REQUIRES: machine.rates.measured(), dimensions.training, 0 <= update_threads < threads.
StepPrediction PredictStep(const PipelineDimensions& dimensions, const MachineSpeed& machine);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_STEP_PREDICTION_H_

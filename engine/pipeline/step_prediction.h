// How long a planned step will take on a machine of measured rates: its schedule, run on the
// virtual clock. An estimate: products and attention at the rates of one size each, everything else
// by the bytes that it touches.
#ifndef MEGATRAIN_ENGINE_PIPELINE_STEP_PREDICTION_H_
#define MEGATRAIN_ENGINE_PIPELINE_STEP_PREDICTION_H_

#include "engine/hardware_rates.h"
#include "engine/pipeline/lane.h"
#include "engine/pipeline/memory_plan.h"
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

// Pure: the same arguments give the same prediction; a moment's work for models of any size.
// REQUIRES: rates.measured(), plan.dimensions.training, 0 <= update_threads < threads.
StepPrediction PredictStep(const MemoryPlan& plan, const HardwareRates& rates,
                           const StepResources& resources);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_STEP_PREDICTION_H_

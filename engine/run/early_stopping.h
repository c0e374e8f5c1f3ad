// StopsEarly is the rule of training.stop_after_worse: a run ends when that many evaluations in a
// row were no better than the best one. Evaluations (checkpoint_state.h) counts them.
#ifndef MEGATRAIN_ENGINE_RUN_EARLY_STOPPING_H_
#define MEGATRAIN_ENGINE_RUN_EARLY_STOPPING_H_

#include <cstdint>

#include "engine/checkpoint/checkpoint_state.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Returns true if the run ends after these evaluations.
inline bool StopsEarly(const JobSpec& spec, const Evaluations& evaluations) {
  const int64_t worse_max = spec.training.stop_after_worse;
  return worse_max > 0 && evaluations.since_best >= worse_max;
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_EARLY_STOPPING_H_

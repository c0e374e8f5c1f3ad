// Computes the learning rate of each step.
#ifndef MEGATRAIN_ENGINE_OPTIM_LEARNING_RATE_H_
#define MEGATRAIN_ENGINE_OPTIM_LEARNING_RATE_H_

#include <cstdint>

#include "engine/job/job_spec.h"

namespace megatrain {

// Returns the learning rate of step k = `step` of total = `total_steps`, counted from 1. With w =
// warmup_steps and f = final_fraction it is
//   k <= w      peak k / w
//   k > w       peak (f + (1 - f) s(p))
// where p in [0, 1] is the part of the way done, and s is
//   cosine                s(p) = (1 + cos(pi p)) / 2    p = (k - w) / (total - w)
//   linear                s(p) = 1 - p                  p = (k - w) / (total - w)
//   constant              s(p) = 1
//   warmup_stable_decay   s(p) = 1 - p                  p = (k - b) / (total - b), 0 while k <= b,
//                         b = max(w, total (1 - decay_fraction))
// So cosine and linear fall from peak at step w to peak f at the last step. warmup_stable_decay
// stays at peak up to step b and then falls to peak f; with a decay_fraction of 0 it does not fall.
// Without warm-up w is 0. If w >= total_steps, the last step has peak total / w. The result depends
// on the arguments alone, so a resumed run continues exactly.
//
// The sources are Loshchilov and Hutter 2017 (SGDR) for cosine and Hu et al. 2024 (MiniCPM) for
// warmup_stable_decay. REQUIRES: 1 <= step <= total_steps, warmup_steps >= 0, and both fractions in
// [0, 1].
double LearningRate(const JobSpec::Schedule& schedule, double peak, int64_t step,
                    int64_t total_steps);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_LEARNING_RATE_H_

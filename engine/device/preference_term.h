// The preference loss of one pair of answers (DPO and its variants), and its derivatives. Both the
// host's and the device's compiler read this file.
//
// c and r are the log-probabilities of the chosen and the rejected answer, each minus that of the
// reference model, and z = beta (c - r). The losses are those of TRL's DPOTrainer:
//   sigmoid  -(1 - s) log sigmoid(z) - s log sigmoid(-z)               Rafailov et al. 2023
//   robust   (-(1 - s) log sigmoid(z) + s log sigmoid(-z)) / (1 - 2 s)  Chowdhury et al. 2024
//   hinge    max(0, 1 - z)                                              Zhao et al. 2023
//   ipo      (c / tokens of chosen - r / tokens of rejected - 1 / (2 beta))^2   Azar et al. 2023
// s is the label smoothing of Mitchell 2023 (conservative DPO). hinge and ipo do not use it.
#ifndef MEGATRAIN_ENGINE_DEVICE_PREFERENCE_TERM_H_
#define MEGATRAIN_ENGINE_DEVICE_PREFERENCE_TERM_H_

#include <cmath>

#include "engine/base/kernel_choices.h"

#ifdef __CUDACC__
#define MT_HOST_DEVICE __host__ __device__
#else
#define MT_HOST_DEVICE
#endif

namespace megatrain {

// A pair's term of the loss, and its derivatives.
struct PreferenceTerm {
  double loss = 0;
  double by_chosen = 0, by_rejected = 0;  // derivatives by c and r
};

// Returns log(1 + exp(x)), which is -log sigmoid(-x), without overflow.
MT_HOST_DEVICE inline double Softplus(double x) {
  return (x > 0 ? x : 0) + log1p(exp(x > 0 ? -x : x));
}
// Returns 1 / (1 + exp(-x)), without overflow.
MT_HOST_DEVICE inline double Sigmoid(double x) {
  const double e = exp(x > 0 ? -x : x);
  return (x > 0 ? 1 : e) / (1 + e);
}

// Returns the loss of a pair and its derivatives. `chosen` and `rejected` are c and r. The numbers
// of the answers' tokens are used for ipo alone. REQUIRES: label_smoothing is not 0.5 for robust,
// and both numbers of tokens and beta are above 0 for ipo.
MT_HOST_DEVICE inline PreferenceTerm PreferenceTermOf(const PreferenceObjective& objective,
                                                      double chosen, double rejected,
                                                      double chosen_tokens,
                                                      double rejected_tokens) {
  const double beta = objective.beta, s = objective.label_smoothing;
  if (objective.loss == PreferenceLossKind::kIpo) {
    const double error = chosen / chosen_tokens - rejected / rejected_tokens - 1 / (2 * beta);
    return {error * error, 2 * error / chosen_tokens, -2 * error / rejected_tokens};
  }
  const double z = beta * (chosen - rejected);
  double loss = 0, by_z = 0;
  if (objective.loss == PreferenceLossKind::kHinge) {
    // Not max, which would hide a NaN.
    loss = z >= 1 ? 0 : 1 - z;
    by_z = z >= 1 ? 0 : -1;
  } else if (objective.loss == PreferenceLossKind::kRobust) {
    loss = ((1 - s) * Softplus(-z) - s * Softplus(z)) / (1 - 2 * s);
    by_z = (-(1 - s) * Sigmoid(-z) - s * Sigmoid(z)) / (1 - 2 * s);
  } else {
    loss = (1 - s) * Softplus(-z) + s * Softplus(z);
    by_z = -(1 - s) * Sigmoid(-z) + s * Sigmoid(z);
  }
  return {loss, beta * by_z, -beta * by_z};
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_PREFERENCE_TERM_H_

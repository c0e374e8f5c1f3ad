// Computes the factor that clips gradients by their global norm, as torch.nn.utils.clip_grad_norm_
// (Pascanu et al. 2013). engine/pipeline/schedule/step_builder.cc and update_builder.h say how
// clipping changes the order of a step.
#ifndef MEGATRAIN_ENGINE_OPTIM_CLIP_COEFFICIENT_H_
#define MEGATRAIN_ENGINE_OPTIM_CLIP_COEFFICIENT_H_

#include <algorithm>

namespace megatrain {

// Returns the factor for every gradient: min(1, max_norm / (norm + 1e-6)), rounded to FP32, or 1 if
// max_norm is 0, which means no clipping. REQUIRES: norm is finite and max_norm >= 0.
inline float ClipCoefficient(double norm, double max_norm) {
  if (max_norm == 0) return 1.0f;
  // torch's constant; keeps a zero gradient from dividing by zero.
  constexpr double kNormEpsilon = 1e-6;
  return static_cast<float>(std::min(1.0, max_norm / (norm + kNormEpsilon)));
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_CLIP_COEFFICIENT_H_

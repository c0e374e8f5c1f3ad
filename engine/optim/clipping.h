// Clipping by the global norm, as torch.nn.utils.clip_grad_norm_ does it (Pascanu et al. 2013).
#ifndef MEGATRAIN_ENGINE_OPTIM_CLIPPING_H_
#define MEGATRAIN_ENGINE_OPTIM_CLIPPING_H_

#include <algorithm>

namespace megatrain {

// What every gradient is multiplied with: min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0 (no
// clipping). REQUIRES: norm is finite and max_norm >= 0.
inline float ClipCoefficient(double norm, double max_norm) {
  if (max_norm == 0) return 1.0f;
  // torch's constant; keeps a zero gradient from dividing by zero.
  constexpr double kNormEpsilon = 1e-6;
  return static_cast<float>(std::min(1.0, max_norm / (norm + kNormEpsilon)));
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_CLIPPING_H_

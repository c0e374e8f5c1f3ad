// The settings of training.objective: dpo, which the job file and the kernels share.
#ifndef MEGATRAIN_ENGINE_BASE_PREFERENCE_OBJECTIVE_H_
#define MEGATRAIN_ENGINE_BASE_PREFERENCE_OBJECTIVE_H_

namespace megatrain {

enum class PreferenceLossKind { kSigmoid, kRobust, kHinge, kIpo };

// engine/device/preference_term.h has the formulas.
struct PreferenceObjective {
  PreferenceLossKind loss = PreferenceLossKind::kSigmoid;
  double beta = 0.1;
  double label_smoothing = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_PREFERENCE_OBJECTIVE_H_

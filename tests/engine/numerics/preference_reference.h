// The references in tests/golden/models/preference, as make_preference_references.py writes them.
#ifndef MEGATRAIN_TESTS_ENGINE_NUMERICS_PREFERENCE_REFERENCE_H_
#define MEGATRAIN_TESTS_ENGINE_NUMERICS_PREFERENCE_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/kernel_choices.h"
#include "engine/data/sequences/sequence.h"
#include "engine/trace/step_record.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {

struct PreferenceReference {
  std::string directory;  // the family's HF directory
  std::string pairs;      // the path of the curves' data, a JSON Lines file of format preference
  // Pairs with log-probabilities of a reference that is not the policy, and what FP32 makes of
  // them.
  std::vector<Sequence> sequences;
  struct Loss {
    PreferenceObjective objective;
    double loss = 0, gradient_norm = 0;
    Rewards rewards;
  };
  std::vector<Loss> losses;  // by kind
  NamedTensors gradients;    // of the first kind
  int64_t curve_steps = 0, curve_pairs = 0;
  double curve_beta = 0;
  struct Curve {
    LossCurve losses;
    std::vector<Rewards> rewards;
  };
  Curve fp32[2], fp64[2], bf16[2];  // [0] without clipping, [1] clipped to a norm of 1
};

std::vector<std::string> PreferenceFamilies();
// Ends the test run with a message if a file is missing.
PreferenceReference LoadPreferenceReference(const std::string& family);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_NUMERICS_PREFERENCE_REFERENCE_H_

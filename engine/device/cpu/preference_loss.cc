#include "engine/device/cpu/preference_loss.h"

#include <algorithm>

#include "engine/device/preference_term.h"

namespace megatrain {

void PreferenceLossOfPair(const PreferenceLossArgs& args, int64_t pair) {
  const int32_t* const bounds = args.bounds + 4 * pair;
  double logps[2] = {0, 0}, tokens[2] = {0, 0};
  for (int side = 0; side < 2; ++side) {
    for (int32_t t = bounds[2 * side]; t < bounds[2 * side + 1]; ++t) {
      if (args.labels[t] < 0) continue;
      logps[side] -= args.losses[t];
      tokens[side] += 1;
    }
  }
  const double* const reference = args.reference + 2 * pair;
  const PreferenceTerm term = TermOf(args.objective, logps[0] - reference[0],
                                     logps[1] - reference[1], tokens[0], tokens[1]);
  args.results[pair] = {logps[0], logps[1], term.loss};
  if (args.weights == nullptr) return;
  // A token's loss is minus its log-probability.
  for (int side = 0; side < 2; ++side) {
    const double by_loss = -(side == 0 ? term.by_chosen : term.by_rejected) * args.scale;
    std::fill(args.weights + bounds[2 * side], args.weights + bounds[2 * side + 1],
              static_cast<float>(by_loss));
  }
}

}  // namespace megatrain

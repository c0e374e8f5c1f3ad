#include "engine/data/sequences/sequence.h"

#include <cstddef>

namespace megatrain {

std::vector<int32_t> PredictionTargets(const Sequence& sequence) {
  const std::vector<int32_t>& document = sequence.document_ids;
  std::vector<int32_t> targets(sequence.labels.size(), kMaskedLabel);
  for (size_t t = 0; t + 1 < targets.size(); ++t) {
    if (document[t] == document[t + 1] && document[t] >= 0) targets[t] = sequence.labels[t + 1];
  }
  return targets;
}

}  // namespace megatrain

// One training sequence.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_SEQUENCE_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_SEQUENCE_H_

#include <cstdint>
#include <vector>

namespace megatrain {

inline constexpr int32_t kMaskedLabel = -100;

// All vectors have sequence_length elements. labels[t] is the token AT t (as with labels=input_ids
// in transformers) or kMaskedLabel; the prediction for labels[t + 1] is made at t, and only if both
// are of one document.
struct Sequence {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;
  std::vector<int32_t> position_ids;  // restart at 0 with each document
  std::vector<int32_t>
      document_ids;  // ascending from 0 within the sequence; padding is a document of its own, -1
};

// The target of the prediction at each position: targets[t] = labels[t + 1] if t + 1 is in the same
// document (and not padding), else kMaskedLabel; the last is masked.
std::vector<int32_t> PredictionTargets(const Sequence& sequence);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_SEQUENCE_H_

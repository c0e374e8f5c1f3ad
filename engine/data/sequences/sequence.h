// Sequence is one sequence of tokens for training or evaluation.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_SEQUENCE_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_SEQUENCE_H_

#include <cstdint>
#include <vector>

namespace megatrain {

// The label of a token that the loss is not on.
inline constexpr int32_t kMaskedLabel = -100;

// All vectors but reference_logps have one element for each token, padding included. In training
// these are data.sequence_length elements. As in transformers with labels=input_ids, labels[t] is
// the token at t or kMaskedLabel. The prediction for labels[t + 1] is made at t, and only if both
// are in one document. If a text goes on in the next sequence, its rest is a document of its own
// there.
struct Sequence {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;
  std::vector<int32_t> position_ids;  // from 0 in each document
  // Ascending from 0 within the sequence. Padding is a document of its own, -1.
  std::vector<int32_t> document_ids;
  // The documents 2 k and 2 k + 1 are the chosen and the rejected answer to one prompt.
  bool pairs = false;
  // The log-probabilities that the reference gives each pair's chosen and rejected answer, [number
  // of pairs, 2]; empty: all are 0.
  std::vector<double> reference_logps;
};

// Returns the targets of the predictions, [tokens]: at t labels[t + 1] if t + 1 is in the same
// document and not padding, else kMaskedLabel. The last position has kMaskedLabel.
std::vector<int32_t> PredictionTargets(const Sequence& sequence);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_SEQUENCE_H_

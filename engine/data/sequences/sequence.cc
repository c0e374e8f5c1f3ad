#include "engine/data/sequences/sequence.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace megatrain {

std::vector<int32_t> PredictionTargets(const Sequence& sequence) {
  const std::vector<int32_t>& document = sequence.document_ids;
  std::vector<int32_t> targets(sequence.labels.size(), kMaskedLabel);
  for (size_t t = 0; t + 1 < targets.size(); ++t) {
    if (document[t] == document[t + 1] && document[t] >= 0) targets[t] = sequence.labels[t + 1];
  }
  return targets;
}

absl::Status CheckTokenIds(const Batch& batch, int64_t vocabulary) {
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const Sequence& sequence = batch.sequences[s];
    const auto refuse = [&](int32_t id, size_t position) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", id, " at position ", position, " of sequence ", s,
          " is none of the model's, whose vocabulary has the ids 0 to ", vocabulary - 1,
          "; use the tokenizer and the data that belong to this model"));
    };
    for (size_t t = 0; t < sequence.input_ids.size(); ++t) {
      const int32_t id = sequence.input_ids[t], label = sequence.labels[t];
      if (id < 0 || id >= vocabulary) return refuse(id, t);
      if (label >= vocabulary || (label < 0 && label != kMaskedLabel)) return refuse(label, t);
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain

// A batch in the one form that it keeps from the loader to the device: training, evaluation and
// generation make it with MakeBatch, and nothing behind that derives targets or documents again.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/data/sequences/sequence.h"

namespace megatrain {

// The tokens of one optimizer step, of one evaluation batch or of one text to go on from. The
// arrays hold the batch's tokens, sequence after sequence: those of micro-batch 0 come first.
struct Batch {
  int64_t step = 0;  // from 1
  int64_t sequence_length = 0;
  int64_t predictions = 0;         // unmasked targets: what the loss is normalised by
  int64_t input_tokens = 0;        // not padding
  std::vector<int32_t> ids;        // [tokens]
  std::vector<int32_t> positions;  // [tokens], restart at 0 with each document
  std::vector<int32_t> targets;    // [tokens], PredictionTargets
  // [tokens]: for each micro-batch, the numbers that its tokens have in it, by ascending id; tokens
  // of the same id keep their order.
  std::vector<int32_t> sorted_positions;
  std::vector<int64_t> micro_batch_tokens;  // [micro-batches]
  // For each micro-batch, the number in it of every document's first token, then its tokens.
  // Padding is a document.
  std::vector<std::vector<int32_t>> document_starts;
};

// The last micro-batch may have fewer sequences than the others. REQUIRES: all sequences have the
// same length.
Batch MakeBatch(int64_t step, absl::Span<const Sequence> sequences,
                int64_t sequences_per_micro_batch);

// InvalidArgument names the first token or unmasked target that is none of a model's `vocabulary`
// ids, and its place. Kernels index by these ids unchecked.
absl::Status CheckTokenIds(const Batch& batch, int64_t vocabulary);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_H_

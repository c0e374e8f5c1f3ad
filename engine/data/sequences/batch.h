// Batch is a batch of training, evaluation or generation, in the form in which it goes to the
// device. MakeBatch makes one of sequences.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/data/sequences/sequence.h"

namespace megatrain {

// The tokens of one optimizer step, of one evaluation batch, or of texts to continue. The arrays
// hold the tokens of all sequences one after another, those of micro-batch 0 first. In generation
// the counts from predictions to step_micro_batches are 0.
struct Batch {
  int64_t step = 0;                // from 1; 0 outside training
  int64_t sequence_length = 0;     // in generation the tokens of the largest micro-batch
  int64_t predictions = 0;         // unmasked targets
  int64_t input_tokens = 0;        // tokens without padding
  int64_t pairs = 0;               // pairs of answers, if that is what the sequences hold
  int step_micro_batches = 0;      // micro-batches; in a part of a batch those of the whole
  std::vector<int32_t> ids;        // [tokens]
  std::vector<int32_t> positions;  // [tokens], from 0 in each document; in generation in the text
  std::vector<int32_t> targets;    // [tokens], PredictionTargets; in generation all masked
  // [tokens]: for each micro-batch, the numbers of its tokens within it, sorted by id. Tokens of
  // the same id keep their order. In generation, which has no gradients, all are 0.
  std::vector<int32_t> sorted_positions;
  std::vector<int64_t> micro_batch_tokens;  // [micro-batches]
  // For each micro-batch, the number within it of every document's first token, then the number of
  // its tokens. Padding counts as a document.
  std::vector<std::vector<int32_t>> document_starts;
  // For each micro-batch, the runs of padding [begin, end) within it, ascending. Empty in
  // generation.
  std::vector<std::vector<std::pair<int32_t, int32_t>>> padding;
  // Generation only. [tokens]: the row of the key-value cache at which the token's sequence begins,
  // or -1 if the token is not kept. Else empty, as state_rows.
  std::vector<int32_t> first_rows;
  // [tokens]: the row of the cache for the states of the token's sequence, or -1.
  std::vector<int32_t> state_rows;
  // Generation only: the tokens attend to the cache, and not to their documents.
  bool attends_to_cache = false;
  // For each micro-batch [pairs, 4], numbers of tokens within it: the first of the document of the
  // chosen answer and the one behind its last, then those of the rejected one. Empty without pairs.
  std::vector<std::vector<int32_t>> pair_bounds;
  // For each micro-batch [pairs, 2], as Sequence::reference_logps. Empty without pairs.
  std::vector<std::vector<double>> reference_logps;

  // Returns the number of terms of the loss, by which it is normalised.
  int64_t loss_terms() const { return pairs > 0 ? pairs : predictions; }
};

// Makes the batch of `step` (as Batch::step). The last micro-batch may have fewer sequences than
// the others. Log-probabilities of the reference that a sequence lacks become 0. REQUIRES:
// sequences_per_micro_batch >= 1, all sequences have the same length, and all or none hold pairs.
Batch MakeBatch(int64_t step, absl::Span<const Sequence> sequences,
                int64_t sequences_per_micro_batch);

// Returns the part of a batch that is rank `rank`'s of `ranks`: micro-batches [n * rank / ranks, n
// * (rank + 1) / ranks) of n, possibly none. The scalar fields stay those of the whole batch.
// REQUIRES: the batch is one of MakeBatch, and 0 <= rank < ranks.
Batch PartOfBatch(const Batch& batch, int rank, int ranks);

// Returns InvalidArgument, naming the token and its place, for the first token or unmasked target
// that is not in [0, vocabulary). The place is right only in a batch of MakeBatch. Kernels index by
// these ids unchecked.
absl::Status CheckTokenIds(const Batch& batch, int64_t vocabulary);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_H_

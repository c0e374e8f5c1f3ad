#include "engine/generation/generation_batch.h"

#include "engine/data/sequences/sequence.h"

namespace megatrain {
namespace {

// Of no sequence if the rows are -1.
void AddToken(int32_t id, int64_t position, int32_t first_row, int32_t state_row, Batch& batch) {
  batch.ids.push_back(id);
  batch.positions.push_back(static_cast<int32_t>(position));
  batch.targets.push_back(kMaskedLabel);
  batch.sorted_positions.push_back(0);  // for gradients, of which there are none
  batch.first_rows.push_back(first_row);
  batch.state_rows.push_back(state_row);
  ++batch.micro_batch_tokens.back();
}

void BeginMicroBatch(Batch& batch) {
  batch.micro_batch_tokens.push_back(0);
  batch.document_starts.push_back({0});
}

// Fills the micro-batch up with a document of tokens that are not kept.
void FillUp(int64_t tokens, Batch& batch) {
  constexpr int32_t kAny = 0;
  const int64_t begin = batch.micro_batch_tokens.back();
  if (begin < tokens) {
    for (int64_t i = begin; i < tokens; ++i) {
      AddToken(kAny, /*position=*/0, /*first_row=*/-1, /*state_row=*/-1, batch);
    }
    batch.document_starts.back().push_back(static_cast<int32_t>(tokens));
  }
  batch.sequence_length = std::max(batch.sequence_length, tokens);
}

}  // namespace

Batch PromptBatch(absl::Span<const CachedSequence> sequences, int64_t micro_batch_tokens_max) {
  Batch batch;
  for (const CachedSequence& sequence : sequences) {
    BeginMicroBatch(batch);
    const int64_t tokens = static_cast<int64_t>(sequence.ids.size());
    for (int64_t i = 0; i < tokens; ++i) {
      AddToken(sequence.ids[static_cast<size_t>(i)], i, sequence.first_row, sequence.state_row,
               batch);
    }
    batch.document_starts.back().push_back(static_cast<int32_t>(tokens));
    FillUp(PromptMicroBatchTokens(tokens, micro_batch_tokens_max), batch);
  }
  return batch;
}

Batch LastTokensBatch(absl::Span<const CachedSequence> sequences, int64_t micro_batch_tokens_max) {
  const int64_t tokens = std::min(kGenerationTokens, micro_batch_tokens_max);
  Batch batch;
  batch.attends_to_cache = true;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (static_cast<int64_t>(i) % tokens == 0) {
      if (i > 0) FillUp(tokens, batch);
      BeginMicroBatch(batch);
    }
    const CachedSequence& sequence = sequences[i];
    AddToken(sequence.ids.back(), static_cast<int64_t>(sequence.ids.size()) - 1, sequence.first_row,
             sequence.state_row, batch);
    batch.document_starts.back().push_back(static_cast<int32_t>(batch.micro_batch_tokens.back()));
  }
  FillUp(tokens, batch);
  return batch;
}

}  // namespace megatrain

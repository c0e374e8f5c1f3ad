// Makes the batches of generation: whole prompts, whose keys and values fill the cache, and then
// single tokens that attend to the cache.
//
// Matrix products of other shapes may round differently. So a prompt is a micro-batch by itself,
// and single tokens go in micro-batches of one size, filled up with tokens of no sequence. The
// logits of a sequence then do not depend on the sequences beside it, except with longrope
// (RopeConfig::short_factors).
#ifndef MEGATRAIN_ENGINE_GENERATION_GENERATION_BATCH_H_
#define MEGATRAIN_ENGINE_GENERATION_GENERATION_BATCH_H_

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/data/sequences/batch.h"

namespace megatrain {

// The number of tokens of a micro-batch of single tokens. Prompts are filled up to a multiple of
// it, so that few shapes of products occur. It is a multiple of 6 and 8, so that a token's place
// changes no bit: oneDNN multiplies rows in blocks of 6 (AVX2) or 8 (AVX-512), and sums the rows of
// a last block that is not whole in another order. With a smaller number a device would read the
// weights more often for a large batch, with a larger one compute more for a small batch. 24 rows
// of a product take 48 operations for each weight, which take less time than moving the weight.
inline constexpr int64_t kGenerationTokens = 24;

// A longer prompt goes through a layer in chunks of this many tokens.
inline constexpr int64_t kPromptChunkTokens = 16384;

// Returns the number of tokens of a prompt's micro-batch: `prompt_tokens` filled up to a multiple
// of kGenerationTokens, but at most `tokens_max`. REQUIRES: prompt_tokens <= tokens_max.
constexpr int64_t PromptMicroBatchTokens(int64_t prompt_tokens, int64_t tokens_max) {
  const int64_t filled =
      (prompt_tokens + kGenerationTokens - 1) / kGenerationTokens * kGenerationTokens;
  return std::min(filled, tokens_max);
}

// A sequence in generation, read during a call only. The cache keeps its keys and values from row
// `first_row` on, and its states (of delta nets) in row `state_row`.
struct CachedSequence {
  absl::Span<const int32_t> ids;  // not empty
  int32_t first_row = 0;
  int32_t state_row = 0;
};

// Returns a batch with a micro-batch for each sequence, which has all its tokens. REQUIRES: no
// sequence has more than `micro_batch_tokens_max` tokens.
Batch PromptBatch(absl::Span<const CachedSequence> sequences, int64_t micro_batch_tokens_max);

// Returns a batch with the last token of each sequence, in micro-batches of kGenerationTokens
// tokens, or of `micro_batch_tokens_max` if that is less. REQUIRES: there are sequences, and the
// cache has the keys, values and states of their tokens before the last.
Batch LastTokensBatch(absl::Span<const CachedSequence> sequences, int64_t micro_batch_tokens_max);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_GENERATION_GENERATION_BATCH_H_

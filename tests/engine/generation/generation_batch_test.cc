#include "engine/generation/generation_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace megatrain {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<int32_t> Ids(int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

TEST(GenerationBatchTest, APromptIsAMicroBatchFilledUpWithTokensThatAreNotKept) {
  const std::vector<int32_t> a = Ids(49), b = Ids(2);
  const Batch batch = PromptBatch(std::vector<CachedSequence>{{a, 0, 3}, {b, 60, 1}}, 60);
  EXPECT_FALSE(batch.attends_to_cache);
  EXPECT_THAT(batch.micro_batch_tokens, ElementsAre(60, 24)) << "not 72: more than there may be";
  EXPECT_THAT(batch.document_starts, ElementsAre(ElementsAre(0, 49, 60), ElementsAre(0, 2, 24)));
  ASSERT_EQ(batch.ids.size(), 84u);
  for (size_t i = 0; i < 49; ++i) {
    EXPECT_EQ(batch.ids[i], a[i]);
    EXPECT_EQ(batch.positions[i], static_cast<int32_t>(i));
    EXPECT_EQ(batch.first_rows[i], 0);
    EXPECT_EQ(batch.state_rows[i], 3);
  }
  EXPECT_EQ(batch.state_rows[49], -1);
  EXPECT_EQ(batch.state_rows[61], 1);
  EXPECT_EQ(batch.first_rows[49], -1);
  EXPECT_EQ(batch.positions[55], 0);
  EXPECT_EQ(batch.first_rows[61], 60);
  EXPECT_EQ(batch.first_rows[62], -1);
  EXPECT_THAT(batch.targets, Each(kMaskedLabel));
  EXPECT_TRUE(CheckTokenIds(batch, 200).ok());
  EXPECT_EQ(batch.sequence_length, 60);
  EXPECT_EQ(batch.sorted_positions.size(), 84u);
  // One that is whole already.
  const std::vector<int32_t> c = Ids(static_cast<int32_t>(kGenerationTokens));
  const Batch whole = PromptBatch(std::vector<CachedSequence>{{c, 0, 0}}, 60);
  EXPECT_THAT(whole.micro_batch_tokens, ElementsAre(kGenerationTokens));
  EXPECT_THAT(whole.document_starts, ElementsAre(ElementsAre(0, 24)));
  EXPECT_EQ(whole.ids, c);
}

TEST(GenerationBatchTest, LastTokensGoInMicroBatchesOfOneSize) {
  std::vector<std::vector<int32_t>> ids;
  std::vector<CachedSequence> sequences;
  for (int32_t i = 0; i < 40; ++i) ids.push_back(Ids(i + 1));
  for (int32_t i = 0; i < 40; ++i) sequences.push_back({ids[static_cast<size_t>(i)], 50 * i, i});
  const Batch batch = LastTokensBatch(sequences, 1000);
  EXPECT_TRUE(batch.attends_to_cache);
  EXPECT_THAT(batch.micro_batch_tokens, ElementsAre(kGenerationTokens, kGenerationTokens));
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(batch.ids[i], static_cast<int32_t>(100 + i));
    EXPECT_EQ(batch.positions[i], static_cast<int32_t>(i));
    EXPECT_EQ(batch.first_rows[i], static_cast<int32_t>(50 * i));
    EXPECT_EQ(batch.state_rows[i], static_cast<int32_t>(i));
  }
  for (size_t i = 40; i < 48; ++i) {
    EXPECT_EQ(batch.first_rows[i], -1);
    EXPECT_EQ(batch.state_rows[i], -1);
    EXPECT_EQ(batch.ids[i], 0);
    EXPECT_EQ(batch.positions[i], 0);
  }
  EXPECT_EQ(batch.sequence_length, kGenerationTokens);
  // Each token is a document, and those that fill up are one.
  std::vector<int32_t> starts(static_cast<size_t>(kGenerationTokens) + 1);
  std::iota(starts.begin(), starts.end(), 0);
  EXPECT_EQ(batch.document_starts[0], starts);
  starts.resize(17);
  starts.push_back(static_cast<int32_t>(kGenerationTokens));
  EXPECT_EQ(batch.document_starts[1], starts);
  const std::vector<CachedSequence> full(sequences.begin(), sequences.begin() + kGenerationTokens);
  EXPECT_THAT(LastTokensBatch(full, 1000).micro_batch_tokens, ElementsAre(kGenerationTokens));
  // A plan may have smaller micro-batches.
  EXPECT_THAT(LastTokensBatch(sequences, 16).micro_batch_tokens, ElementsAre(16, 16, 16));
}

}  // namespace
}  // namespace megatrain

#include "engine/data/sequences/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/data/sequences/packing.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Two documents of two and three tokens, and a place of padding.
Sequence TwoDocuments() {
  Sequence sequence;
  sequence.input_ids = {7, 3, 5, 3, 9, 0};
  sequence.labels = {7, 3, kMaskedLabel, 3, 9, kMaskedLabel};
  sequence.position_ids = {0, 1, 0, 1, 2, 0};
  sequence.document_ids = {0, 0, 1, 1, 1, -1};
  return sequence;
}

TEST(BatchTest, HoldsWhatTheDeviceTakes) {
  const std::vector<Sequence> sequences = {TwoDocuments(), WholeSequence({4, 4, 2, 1, 8, 2}),
                                           TwoDocuments()};
  const Batch batch = MakeBatch(3, sequences, 2);
  EXPECT_EQ(batch.step, 3);
  EXPECT_EQ(batch.sequence_length, 6);
  EXPECT_EQ(batch.predictions, 3 + 5 + 3);
  EXPECT_EQ(batch.input_tokens, 5 + 6 + 5);
  EXPECT_EQ(batch.step_micro_batches, 2);
  EXPECT_THAT(batch.ids, ElementsAre(7, 3, 5, 3, 9, 0, 4, 4, 2, 1, 8, 2, 7, 3, 5, 3, 9, 0));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 0, 1, 2, 0, 0, 1, 2, 3, 4, 5, 0, 1, 0, 1, 2, 0));
  const int32_t m = kMaskedLabel;
  EXPECT_THAT(batch.targets, ElementsAre(3, m, 3, 9, m, m, 4, 2, 1, 8, 2, m, 3, m, 3, 9, m, m));
  EXPECT_THAT(batch.micro_batch_tokens, ElementsAre(12, 6));
  EXPECT_THAT(batch.document_starts,
              ElementsAre(ElementsAre(0, 2, 5, 6, 12), ElementsAre(0, 2, 5, 6)));
  EXPECT_THAT(batch.padding, ElementsAre(ElementsAre(Pair(5, 6)), ElementsAre(Pair(5, 6))));
  EXPECT_THAT(batch.sorted_positions,
              ElementsAre(5, 9, 8, 11, 1, 3, 6, 7, 2, 0, 10, 4, 5, 1, 3, 2, 0, 4));
}

TEST(BatchTest, HoldsTheRunsOfPaddingOfEachMicroBatch) {
  Sequence all_padding = TwoDocuments();
  all_padding.document_ids.assign(6, -1);
  const Batch batch = MakeBatch(
      1,
      std::vector<Sequence>{WholeSequence({4, 4, 2, 1, 8, 2}), TwoDocuments(), TwoDocuments(),
                            all_padding, WholeSequence({4, 4, 2, 1, 8, 2})},
      2);
  EXPECT_THAT(batch.padding, ElementsAre(ElementsAre(Pair(11, 12)),
                                         ElementsAre(Pair(5, 6), Pair(6, 12)), ElementsAre()));
  EXPECT_EQ(batch.input_tokens, 6 + 5 + 5 + 0 + 6);
}

TEST(BatchTest, NamesThePlaceOfATokenThatTheModelHasNot) {
  std::vector<Sequence> sequences = {TwoDocuments(), TwoDocuments()};
  EXPECT_TRUE(CheckTokenIds(MakeBatch(1, sequences, 2), 10).ok());
  const absl::Status id = CheckTokenIds(MakeBatch(1, sequences, 2), 9);
  EXPECT_EQ(id.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(id.message()), HasSubstr("token 9 at position 4 of sequence 0"));
  // The first token of a sequence is no target.
  for (const int32_t first : {-1, 10}) {
    std::vector<Sequence> other = sequences;
    other[1].input_ids[0] = first;
    EXPECT_THAT(std::string(CheckTokenIds(MakeBatch(1, other, 1), 10).message()),
                HasSubstr("token " + std::to_string(first) + " at position 0 of sequence 1"));
  }
  sequences[1].labels[1] = -1;
  EXPECT_THAT(std::string(CheckTokenIds(MakeBatch(1, sequences, 1), 10).message()),
              HasSubstr("token -1 at position 1 of sequence 1"));
}

template <typename T>
void Append(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

// What all have together, and the counts, by which each normalises.
TEST(BatchTest, RanksHaveConsecutivePartsAndTheCountsOfTheWhole) {
  std::vector<Sequence> sequences;
  for (int32_t i = 0; i < 5; ++i) {
    Sequence sequence = TwoDocuments();
    sequence.pairs = true;
    sequence.input_ids[1] = sequence.labels[1] = 20 - i;
    sequence.reference_logps = {-1.0 - i, -2.0};
    sequences.push_back(sequence);
  }
  const Batch whole = MakeBatch(7, sequences, /*sequences_per_micro_batch=*/2);
  ASSERT_THAT(whole.micro_batch_tokens, ElementsAre(12, 12, 6));
  EXPECT_THAT(PartOfBatch(whole, 0, 2).micro_batch_tokens, ElementsAre(12));
  EXPECT_THAT(PartOfBatch(whole, 1, 2).micro_batch_tokens, ElementsAre(12, 6));
  EXPECT_THAT(PartOfBatch(whole, 0, 4).micro_batch_tokens, ElementsAre());
  EXPECT_THAT(PartOfBatch(whole, 3, 4).micro_batch_tokens, ElementsAre(6));
  for (const int ranks : {1, 2, 3, 4}) {
    Batch all;
    for (int rank = 0; rank < ranks; ++rank) {
      const Batch part = PartOfBatch(whole, rank, ranks);
      EXPECT_EQ(part.step, 7);
      EXPECT_EQ(part.sequence_length, 6);
      EXPECT_EQ(part.predictions, whole.predictions);
      EXPECT_EQ(part.input_tokens, whole.input_tokens);
      EXPECT_EQ(part.pairs, 5);
      EXPECT_EQ(part.step_micro_batches, 3);
      Append(part.ids, all.ids);
      Append(part.positions, all.positions);
      Append(part.targets, all.targets);
      Append(part.sorted_positions, all.sorted_positions);
      Append(part.micro_batch_tokens, all.micro_batch_tokens);
      Append(part.document_starts, all.document_starts);
      Append(part.padding, all.padding);
      Append(part.pair_bounds, all.pair_bounds);
      Append(part.reference_logps, all.reference_logps);
    }
    EXPECT_EQ(all.ids, whole.ids) << ranks;
    EXPECT_EQ(all.positions, whole.positions) << ranks;
    EXPECT_EQ(all.targets, whole.targets) << ranks;
    EXPECT_EQ(all.sorted_positions, whole.sorted_positions) << ranks;
    EXPECT_EQ(all.micro_batch_tokens, whole.micro_batch_tokens) << ranks;
    EXPECT_EQ(all.document_starts, whole.document_starts) << ranks;
    EXPECT_EQ(all.padding, whole.padding) << ranks;
    EXPECT_EQ(all.pair_bounds, whole.pair_bounds) << ranks;
    EXPECT_EQ(all.reference_logps, whole.reference_logps) << ranks;
  }
}

TEST(BatchTest, HoldsThePairsOfEachMicroBatch) {
  Sequence pair = TwoDocuments(), two_pairs = TwoDocuments();
  pair.pairs = two_pairs.pairs = true;
  pair.reference_logps = {-1, -2};
  two_pairs.document_ids = {0, 1, 1, 2, 2, 3};
  two_pairs.reference_logps = {-3, -4, -5, -6};
  const Batch batch = MakeBatch(1, std::vector<Sequence>{pair, two_pairs, pair}, 2);
  EXPECT_EQ(batch.pairs, 4);
  EXPECT_EQ(batch.loss_terms(), 4);
  EXPECT_THAT(batch.pair_bounds, ElementsAre(ElementsAre(0, 2, 2, 5, 6, 7, 7, 9, 9, 11, 11, 12),
                                             ElementsAre(0, 2, 2, 5)));
  EXPECT_THAT(batch.reference_logps,
              ElementsAre(ElementsAre(-1, -2, -3, -4, -5, -6), ElementsAre(-1, -2)));
  pair.reference_logps.clear();
  EXPECT_THAT(MakeBatch(1, std::vector<Sequence>{pair}, 1).reference_logps,
              ElementsAre(ElementsAre(0, 0)));
  EXPECT_EQ(MakeBatch(1, std::vector<Sequence>{TwoDocuments()}, 1).loss_terms(), 3);
}

}  // namespace
}  // namespace megatrain

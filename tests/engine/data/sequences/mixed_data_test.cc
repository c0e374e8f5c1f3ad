// Training data that is mixed by weight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/data/order/permutation.h"
#include "engine/data/sequences/batch_loader.h"
#include "tests/engine/data/records/token_bytes.h"
#include "tests/engine/data/sequences/data_test_support.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sources of 6, 30 and 4 sequences of 2 tokens; a sequence begins with its number in all.
class MixedDataTest : public ::testing::Test {
 protected:
  MixedDataTest() {
    uint16_t next = 0;
    for (const int sequences : {6, 30, 4}) {
      std::vector<uint16_t> ids;
      for (int i = 0; i < sequences; ++i) {
        ids.push_back(next++);
        ids.push_back(0);
      }
      const std::string name = "s" + std::to_string(sequences) + ".bin";
      spec_.data.train.push_back(
          {directory_.Write(name, Bytes(ids)), DataFormat::kTokens, "uint16"});
    }
    spec_.data.sequence_length = 2;
    Weigh({5, 3, 2});
  }
  void Weigh(const std::vector<double>& weights) {
    for (size_t i = 0; i < weights.size(); ++i) spec_.data.train[i].weight = weights[i];
  }
  std::unique_ptr<Dataset> Open() {
    auto dataset =
        OpenDataset(spec_, nullptr, directory_.path(), 100, directory_ / "cache", nullptr);
    error_ = std::string(dataset.status().message());
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }
  static int32_t First(const Dataset& dataset, int64_t position) {
    return dataset.TrainSequence(dataset.TrainingOrder(position))->input_ids[0];
  }
  static size_t SourceOf(int32_t number) { return number < 6 ? 0 : number < 36 ? 1 : 2; }

  TestDirectory directory_;
  JobSpec spec_;
  std::string error_;
};

TEST_F(MixedDataTest, EveryBeginningHasItsSharesAndEverySourceItsOwnEpochs) {
  const auto dataset = Open();
  ASSERT_NE(dataset, nullptr) << error_;
  EXPECT_EQ(dataset->train_sequences(), 40);
  std::vector<int64_t> taken(3, 0);
  std::map<std::pair<size_t, int64_t>, std::set<int32_t>> seen;  // by source and its epoch
  const std::vector<double> shares = {0.5, 0.3, 0.2};
  const std::vector<int64_t> sizes = {6, 30, 4};
  for (int64_t position = 0; position < 200; ++position) {
    const int32_t number = First(*dataset, position);
    const size_t source = SourceOf(number);
    EXPECT_TRUE(seen[std::pair(source, taken[source] / sizes[source])].insert(number).second);
    ++taken[source];
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_LT(
          std::abs(static_cast<double>(taken[i]) - shares[i] * static_cast<double>(position + 1)),
          1);
    }
  }
}

TEST_F(MixedDataTest, AnEpochEndsWhenEverySequenceWasSeen) {
  const auto dataset = Open();
  ASSERT_NE(dataset, nullptr) << error_;
  std::set<int32_t> seen;
  for (int64_t p = 0; p + 1 < dataset->epoch_sequences(); ++p) seen.insert(First(*dataset, p));
  EXPECT_EQ(seen.size(), 39u);
  seen.insert(First(*dataset, dataset->epoch_sequences() - 1));
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_NEAR(static_cast<double>(dataset->epoch_sequences()), 100, 4);  // 30 / 0.3
  const std::vector<MixedSource>& mix = dataset->train_report().mix;
  ASSERT_EQ(mix.size(), 3u);
  EXPECT_DOUBLE_EQ(mix[1].share, 0.3);
  EXPECT_EQ(mix[1].sequences, 30);
  EXPECT_NEAR(mix[1].passes, 1, 0.05);
  EXPECT_NEAR(mix[0].passes, 100 * 0.5 / 6, 0.5);
}

TEST_F(MixedDataTest, ShufflingIsEachSourcesOwn) {
  spec_.data.shuffle = false;
  const auto ordered = Open();
  ASSERT_NE(ordered, nullptr) << error_;
  std::vector<int64_t> taken(3, 0);
  const std::vector<int64_t> sizes = {6, 30, 4}, begins = {0, 6, 36};
  for (int64_t position = 0; position < 100; ++position) {
    const int32_t number = First(*ordered, position);
    const size_t source = SourceOf(number);
    EXPECT_EQ(number, begins[source] + taken[source]++ % sizes[source]);
  }
  spec_.data.shuffle = true;
  const auto shuffled = Open();
  EXPECT_NE(shuffled->fingerprint(), ordered->fingerprint());
  int moved = 0;
  for (int64_t position = 0; position < 100; ++position) {
    const int32_t number = First(*shuffled, position);
    EXPECT_EQ(SourceOf(number), SourceOf(First(*ordered, position)));
    moved += number != First(*ordered, position) ? 1 : 0;
  }
  EXPECT_GT(moved, 50);
}

// A run that a later version resumes goes on in the same order: this must never change.
TEST_F(MixedDataTest, TheOrdersAreTheSameInEveryVersionAndThoseOfSourcesDiffer) {
  spec_.data.shuffle = true;
  spec_.training.seed = 9;
  Weigh({0, 0, 0});
  const auto whole = Open();
  ASSERT_NE(whole, nullptr) << error_;
  for (int64_t p = 0; p < 100; ++p) {
    EXPECT_EQ(whole->TrainingOrder(p), PermutedIndex(9, static_cast<uint64_t>(p / 40), 40, p % 40));
  }
  spec_.data.train = {spec_.data.train[1], spec_.data.train[1]};
  Weigh({1, 1});
  const auto mixed = Open();
  ASSERT_NE(mixed, nullptr) << error_;
  constexpr uint64_t kSecondSeed = 9 + 0x9e3779b97f4a7c15u;
  int alike = 0;
  for (int64_t p = 0; p < 100; ++p) {
    const auto epoch = static_cast<uint64_t>(p / 30);
    const int64_t first = PermutedIndex(9, epoch, 30, p % 30);
    const int64_t second = PermutedIndex(kSecondSeed, epoch, 30, p % 30);
    EXPECT_EQ(mixed->TrainingOrder(2 * p), first);
    EXPECT_EQ(mixed->TrainingOrder(2 * p + 1), 30 + second);
    alike += first == second ? 1 : 0;
  }
  EXPECT_LT(alike, 20);
}

TEST_F(MixedDataTest, EvaluationTakesTheEndOfEverySource) {
  spec_.data.eval_fraction = 0.2;
  const auto dataset = Open();
  ASSERT_NE(dataset, nullptr) << error_;
  EXPECT_EQ(dataset->train_sequences(), 4 + 24 + 3);
  EXPECT_EQ(dataset->eval_sequences(), 2 + 6 + 1);
  std::vector<int32_t> held_out;
  for (int64_t i = 0; i < dataset->eval_sequences(); ++i) {
    held_out.push_back(dataset->EvalSequence(i)->input_ids[0]);
  }
  EXPECT_THAT(held_out, ElementsAre(4, 5, 30, 31, 32, 33, 34, 35, 39));
  for (int64_t position = 0; position < 200; ++position) {
    EXPECT_EQ(std::count(held_out.begin(), held_out.end(), First(*dataset, position)), 0);
  }
  spec_.data.eval_fraction = 0.8;
  EXPECT_EQ(Open(), nullptr);
  EXPECT_THAT(error_, HasSubstr("leaves none to train on"));
}

TEST_F(MixedDataTest, TheFingerprintKnowsTheShares) {
  const std::string fingerprint = Open()->fingerprint();
  Weigh({0.5, 0.3, 0.2});
  EXPECT_EQ(Open()->fingerprint(), fingerprint);
  Weigh({5, 2, 3});
  EXPECT_NE(Open()->fingerprint(), fingerprint);
}

TEST_F(MixedDataTest, ALoaderGoesOnAnywhere) {
  const auto dataset = Open();
  spec_.training.global_batch = 4;
  spec_.training.micro_batch = 2;
  spec_.training.epochs = 1;
  const int64_t steps = *TotalSteps(spec_, dataset->epoch_sequences());
  EXPECT_EQ(steps, (dataset->epoch_sequences() + 3) / 4);
  BatchLoader whole(dataset.get(), spec_, 1, 0, steps, 2);
  std::vector<std::vector<int32_t>> batches;
  int64_t sequences = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    batches.push_back((*whole.Next())->ids);
    sequences += static_cast<int64_t>(batches.back().size()) / 2;
  }
  EXPECT_EQ(sequences, dataset->epoch_sequences());
  for (int64_t first = 1; first <= steps; first += 7) {
    BatchLoader resumed(dataset.get(), spec_, first, (first - 1) * 4, steps, 1);
    EXPECT_EQ((*resumed.Next())->ids, batches[static_cast<size_t>(first - 1)]);
  }
}

TEST_F(MixedDataTest, RefusesAnEntryWithoutASequence) {
  spec_.data.train[2].path = directory_.Write("short.bin", std::string(2, '\0'));
  EXPECT_EQ(Open(), nullptr);
  EXPECT_THAT(error_, HasSubstr("short.bin: makes no sequence: 1 tokens are fewer than one"));
}

}  // namespace
}  // namespace megatrain

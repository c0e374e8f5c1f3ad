#include "engine/data/sequences/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/data/cache/reference_logps.h"
#include "engine/data/order/permutation.h"
#include "engine/data/sequences/packing.h"
#include "tests/engine/data/sequences/data_test_support.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// n sequences of 4 tokens, number i all i; `masked` ones have no label.
class NumberedDataset : public Dataset {
 public:
  explicit NumberedDataset(int64_t n, bool shuffle = false) : n_(n), shuffle_(shuffle) {}
  int64_t masked = -1;
  int64_t failing = -1;
  bool pairs = false;

  int64_t train_sequences() const override { return n_; }
  std::vector<EvalSet> eval_sets() const override { return {}; }
  int64_t eval_sequences() const override { return 0; }
  absl::StatusOr<Sequence> TrainSequence(int64_t index) const override {
    if (index == failing) return absl::DataLossError("x.bin: cannot be read");
    Sequence sequence = WholeSequence(std::vector<int32_t>(4, static_cast<int32_t>(index)));
    if (index == masked) sequence.labels.assign(4, kMaskedLabel);
    sequence.document_ids[3] = -1;
    if (pairs) {
      sequence.pairs = true;
      sequence.document_ids = {0, 0, 1, 1};
    }
    return sequence;
  }
  absl::StatusOr<Sequence> EvalSequence(int64_t) const override {
    return absl::OutOfRangeError("none");
  }
  int64_t TrainingOrder(int64_t position) const override {
    return shuffle_ ? PermutedIndex(1, static_cast<uint64_t>(position / n_), n_, position % n_)
                    : position % n_;
  }
  const DatasetReport& train_report() const override { return report_; }
  const DatasetReport& eval_report() const override { return report_; }
  std::string fingerprint() const override { return ""; }
  std::string template_date() const override { return ""; }

 private:
  const int64_t n_;
  const bool shuffle_;
  const DatasetReport report_;
};

JobSpec Spec(int64_t steps, double epochs, int64_t global_batch) {
  JobSpec spec;
  spec.training.steps = steps;
  spec.training.epochs = epochs;
  spec.training.global_batch = global_batch;
  return spec;
}

std::vector<int32_t> Numbers(const Batch& batch) {
  std::vector<int32_t> numbers;
  for (size_t i = 0; i < batch.ids.size(); i += 4) numbers.push_back(batch.ids[i]);
  return numbers;
}

TEST(BatchLoaderTest, BatchesFollowEachOtherAndSpanEpochs) {
  const NumberedDataset dataset(5);
  BatchLoader loader(&dataset, Spec(3, 0, 4), 1, 0, 3, 2);
  auto batch = loader.Next();
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ((*batch)->step, 1);
  EXPECT_EQ((*batch)->predictions, 4 * 2);  // of 4 tokens the last is padding
  EXPECT_EQ((*batch)->input_tokens, 4 * 3);
  EXPECT_THAT(Numbers(**batch), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Numbers(**loader.Next()), ElementsAre(4, 0, 1, 2));
  EXPECT_THAT(Numbers(**loader.Next()), ElementsAre(3, 4, 0, 1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(loader.Next().status().code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(BatchLoaderTest, TheLastStepOfAnEpochsRunIsSmaller) {
  const NumberedDataset dataset(5);
  const JobSpec spec = Spec(0, 2, 4);
  const int64_t steps = *TotalSteps(spec, 5);
  EXPECT_EQ(steps, 3);
  BatchLoader loader(&dataset, spec, 2, 4, steps, 3);
  EXPECT_THAT(Numbers(**loader.Next()), ElementsAre(4, 0, 1, 2));
  EXPECT_THAT(Numbers(**loader.Next()), ElementsAre(3, 4));
  EXPECT_EQ(loader.Next().status().code(), absl::StatusCode::kOutOfRange);
}

// A run of two epochs was extended to four: its last step had two sequences.
TEST(BatchLoaderTest, GoesOnWhereASmallerStepEnded) {
  const NumberedDataset dataset(5);
  BatchLoader loader(&dataset, Spec(0, 4, 4), 4, 10, 6, 3);
  EXPECT_THAT(Numbers(**loader.Next()), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Numbers(**loader.Next()), ElementsAre(4, 0, 1, 2));
  EXPECT_THAT(Numbers(**loader.Next()), ElementsAre(3, 4));
  EXPECT_EQ(loader.Next().status().code(), absl::StatusCode::kOutOfRange);
}

TEST(BatchLoaderTest, StartsAnywhereAsIfItHadComeThere) {
  const NumberedDataset dataset(37, /*shuffle=*/true);
  std::vector<std::vector<int32_t>> all;
  {
    BatchLoader loader(&dataset, Spec(40, 0, 6), 1, 0, 40, 4);
    for (int step = 1; step <= 40; ++step) all.push_back(Numbers(**loader.Next()));
  }
  for (int64_t first = 1; first <= 40; ++first) {
    BatchLoader loader(&dataset, Spec(40, 0, 6), first, (first - 1) * 6, 40, 1);
    EXPECT_EQ(Numbers(**loader.Next()), all[static_cast<size_t>(first - 1)]);
  }
  // O(1): a step that no walk would reach.
  const int64_t far = int64_t{1} << 50;
  BatchLoader loader(&dataset, Spec(far, 0, 6), far, (far - 1) * 6, far, 1);
  EXPECT_EQ((*loader.Next())->step, far);
}

TEST(BatchLoaderTest, ABatchWithoutPredictionsNamesItsStep) {
  NumberedDataset dataset(5);
  dataset.masked = 2;
  BatchLoader loader(&dataset, Spec(5, 0, 1), 1, 0, 5, 10);
  EXPECT_TRUE(loader.Next().ok());
  EXPECT_TRUE(loader.Next().ok());
  for (int i = 0; i < 2; ++i) {
    const auto batch = loader.Next();
    EXPECT_EQ(batch.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(batch.status().message()), HasSubstr("step 3: none of the batch's 1"));
  }
}

TEST(BatchLoaderTest, HandsOnWhatReadingSays) {
  NumberedDataset dataset(5);
  dataset.failing = 1;
  BatchLoader loader(&dataset, Spec(5, 0, 1), 1, 0, 5, 1);
  EXPECT_TRUE(loader.Next().ok());
  EXPECT_THAT(std::string(loader.Next().status().message()), HasSubstr("x.bin: cannot be read"));
}

// By the number of the sequence, not by its place in the order.
TEST(BatchLoaderTest, AnswersHaveWhatTheReferenceGivesThem) {
  NumberedDataset dataset(5, /*shuffle=*/true);
  dataset.pairs = true;
  const TestDirectory directory;
  ReferenceLogps reference(directory.path(), "key", 5, /*part_sequences=*/2, PosixFileSystem());
  ASSERT_TRUE(reference.Make(0, {{-0.5, 10}, {-1.5, 11}}).ok());
  ASSERT_TRUE(reference.Make(1, {{-2.5, 12}, {-3.5, 13}}).ok());
  ASSERT_TRUE(reference.Make(2, {{-4.5, 14}}).ok());
  BatchLoader loader(&dataset, Spec(3, 0, 4), 1, 0, 3, 2, &reference);
  for (int step = 0; step < 3; ++step) {
    const auto batch = loader.Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    std::vector<double> expected, got;
    for (const int32_t number : Numbers(**batch)) {
      expected.push_back(-0.5 - number);
      expected.push_back(10 + number);
    }
    for (const std::vector<double>& logps : (*batch)->reference_logps) {
      got.insert(got.end(), logps.begin(), logps.end());
    }
    EXPECT_EQ(got, expected);
  }
}

TEST(BatchLoaderTest, EndsWhereverItIs) {
  const NumberedDataset dataset(50, true);
  for (int taken = 0; taken < 30; ++taken) {
    BatchLoader loader(&dataset, Spec(20, 0, 3), 1, 0, 20, taken % 4 + 1);
    for (int i = 0; i < taken; ++i) EXPECT_EQ(loader.Next().ok(), i < 20);
  }
}

}  // namespace
}  // namespace megatrain

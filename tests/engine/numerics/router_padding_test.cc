// Padding changes nothing about routers: neither their auxiliary loss and its gradient nor the
// report of their load.
// Linked with the device to test (device_under_test.h).
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "tests/engine/numerics/trainer_numerics_fixture.h"

namespace megatrain {
namespace {

class RouterPaddingTest : public TrainerNumericsTest {
 protected:
  // Returns the reference's sequences with the loss on all tokens, each cut to its length of
  // `lengths` and padded to `length`.
  std::vector<Sequence> Padded(const std::vector<size_t>& lengths, size_t length) const {
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < lengths.size(); ++i) {
      Sequence& sequence = sequences.emplace_back(reference_.batch.sequences[i]);
      const auto pad = [&](std::vector<int32_t>& tokens, int32_t padding) {
        tokens.resize(lengths[i]);
        tokens.resize(length, padding);
      };
      sequence.labels = sequence.input_ids;
      pad(sequence.input_ids, 7);
      pad(sequence.labels, kMaskedLabel);
      pad(sequence.position_ids, 0);
      pad(sequence.document_ids, -1);
    }
    return sequences;
  }
  // Returns the record of a step that leaves the weights as they are.
  StepRecord StepWith(const std::vector<Sequence>& sequences) {
    const absl::Status submitted = trainer_->Submit(StepOf(sequences, ++step_), 0.0);
    EXPECT_TRUE(submitted.ok()) << submitted;
    const absl::StatusOr<StepRecord> record = trainer_->Collect();
    EXPECT_TRUE(record.ok()) << record.status();
    return record.value_or(StepRecord());
  }

  int64_t step_ = 0;
};

void ExpectSame(const StepRecord& record, const StepRecord& expected) {
  constexpr double kRounding = 2e-5;
  EXPECT_NEAR(record.loss / expected.loss, 1, kRounding);
  EXPECT_NEAR(record.gradient_norm / expected.gradient_norm, 1, kRounding);
  ASSERT_TRUE(record.router.has_value() && expected.router.has_value());
  EXPECT_NEAR(*record.router->auxiliary_loss / *expected.router->auxiliary_loss, 1, kRounding);
  EXPECT_NEAR(record.router->entropy / expected.router->entropy, 1, kRounding);
  EXPECT_EQ(record.router->load, expected.router->load);
  EXPECT_EQ(record.router->busiest, expected.router->busiest);
}

TEST_P(RouterPaddingTest, ChangesNothing) {
  spec_.training.router_auxiliary_loss = 0.7;
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kFp32));
  ExpectSame(StepWith(Padded({24, 24, 24}, 45)), StepWith(Padded({24, 24, 24}, 24)));
  ExpectSame(StepWith(Padded({24, 11, 17}, 45)), StepWith(Padded({24, 11, 17}, 24)));
  // The last sequence is all padding: with one sequence each the whole micro-batch.
  ExpectSame(StepWith(Padded({24, 11, 0}, 45)), StepWith(Padded({24, 11}, 24)));
}

INSTANTIATE_TEST_SUITE_P(
    Families, RouterPaddingTest,
    ::testing::Combine(::testing::Values("qwen3_moe", "gemma4_moe"),
                       ::testing::Values(Setting{"whole", 3, 0, StashPlace::kDevice,
                                                 RecomputeMode::kNone},
                                         Setting{"sweeps_in_chunks", 1, 2, StashPlace::kHost,
                                                 RecomputeMode::kAuto, 13, 3})),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

}  // namespace
}  // namespace megatrain

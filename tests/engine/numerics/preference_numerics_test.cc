// Losses, rewards, gradient norms and every gradient of pairs of answers against PyTorch, through
// the pipeline. Linked with the device to test (device_under_test.h).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "engine/data/sequences/batch.h"
#include "engine/hf/config_json.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/trained_tensors.h"
#include "engine/trainer/trainer.h"
#include "tests/engine/numerics/preference_reference.h"
#include "tests/engine/numerics/trainer_fixture.h"

namespace megatrain {
namespace {

struct Setting {
  std::string name;
  int64_t micro_batch;  // of the batch's three sequences
  int64_t micro_batches_per_sweep;
  StashPlace stash;
  int64_t head_chunk_tokens = 0;  // 0: the plan's, which is the whole micro-batch here
};

class PreferenceNumericsTest
    : public TrainerFixture,
      public ::testing::WithParamInterface<std::tuple<std::string, Setting>> {
 protected:
  void Start(const PreferenceObjective& objective) {
    const Setting& setting = std::get<1>(GetParam());
    absl::StatusOr<ModelDescription> config = ReadModelDescription(reference_.directory);
    ASSERT_TRUE(config.ok()) << config.status();
    JobSpec spec;  // the default clips, so that gradients are held
    spec.data.sequence_length = static_cast<int64_t>(reference_.sequences[0].labels.size());
    spec.training.objective = Objective::kDpo;
    spec.training.dpo = objective;
    spec.training.global_batch = static_cast<int64_t>(reference_.sequences.size());
    spec.training.micro_batch = setting.micro_batch;
    spec.training.precision = Precision::kFp32;
    spec.engine.micro_batches_per_sweep = setting.micro_batches_per_sweep;
    spec.engine.stash = setting.stash;
    absl::StatusOr<ModelLayout> layout = BuildTrainingLayout(*config, spec);
    ASSERT_TRUE(layout.ok()) << layout.status();
    Stop();
    layout_ = *std::move(layout);
    MemoryPlan plan;
    ASSERT_NO_FATAL_FAILURE(Plan(spec, &plan));
    if (setting.head_chunk_tokens > 0) {
      plan.dimensions.head_chunk_tokens = setting.head_chunk_tokens;
    }
    ASSERT_NO_FATAL_FAILURE(TrainerFixture::Start(spec, plan, reference_.directory));
    batch_ = MakeBatch(1, reference_.sequences, setting.micro_batch);
  }

  // A reward is the small difference of two sums, of some hundreds in FP32.
  static void ExpectRewards(const Rewards& got, const Rewards& want) {
    EXPECT_NEAR(got.chosen, want.chosen, 1e-5 * (1 + std::abs(want.chosen)));
    EXPECT_NEAR(got.rejected, want.rejected, 1e-5 * (1 + std::abs(want.rejected)));
    EXPECT_NEAR(got.margins, want.margins, 1e-5 * (1 + std::abs(want.margins)));
    EXPECT_DOUBLE_EQ(got.accuracies, want.accuracies);
  }

  const PreferenceReference reference_ = LoadPreferenceReference(std::get<0>(GetParam()));
  Batch batch_;
};

TEST_P(PreferenceNumericsTest, LossRewardsAndGradients) {
  for (size_t kind = 0; kind < reference_.losses.size(); ++kind) {
    const PreferenceReference::Loss& expected = reference_.losses[kind];
    SCOPED_TRACE(testing::Message() << "loss " << kind);
    ASSERT_NO_FATAL_FAILURE(Start(expected.objective));
    RewardSums sums;
    const absl::StatusOr<double> evaluated = trainer_->EvaluateLossSum(batch_, &sums);
    ASSERT_TRUE(evaluated.ok()) << evaluated.status();
    EXPECT_EQ(batch_.loss_terms(), 6);
    EXPECT_EQ(sums.pairs, 6);
    EXPECT_NEAR(*evaluated / 6 / expected.loss, 1, 1e-5);
    ExpectRewards(RewardsOf(sums), expected.rewards);
    ASSERT_TRUE(trainer_->Submit(batch_, 1e-3).ok());
    const absl::StatusOr<StepRecord> record = trainer_->Collect();
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_NEAR(record->loss / expected.loss, 1, 1e-5);
    EXPECT_DOUBLE_EQ(record->loss, *evaluated / 6);
    EXPECT_NEAR(record->gradient_norm / expected.gradient_norm, 1, 1e-4);
    ASSERT_TRUE(record->rewards.has_value());
    ExpectRewards(*record->rewards, expected.rewards);
    if (kind > 0) continue;
    size_t tensors = 0;
    ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
      const std::vector<float> held = trainer_->HeldGradient(tile);
      EXPECT_LE(RelativeError(
                    {held.begin() + tensor.offset, held.begin() + tensor.offset + tensor.elements},
                    reference_.gradients.at(tensor.name)),
                1e-4)
          << tensor.name;
      ++tensors;
    });
    EXPECT_EQ(tensors, reference_.gradients.size());
  }
}

// The reference that is the policy itself: no margin, and the loss of a coin.
TEST_P(PreferenceNumericsTest, LogProbabilitiesOfAnswersMakeNoMarginToTheirOwn) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  const absl::StatusOr<std::vector<double>> logps = trainer_->AnswerLogps(batch_);
  ASSERT_TRUE(logps.ok()) << logps.status();
  ASSERT_EQ(logps->size(), 12u);
  std::vector<Sequence> sequences = reference_.sequences;
  auto next = logps->begin();
  for (Sequence& sequence : sequences) {
    for (double& logp : sequence.reference_logps) {
      EXPECT_LT(*next, 0);
      logp = *next++;
    }
  }
  RewardSums sums;
  const absl::StatusOr<double> loss = trainer_->EvaluateLossSum(
      MakeBatch(1, sequences, std::get<1>(GetParam()).micro_batch), &sums);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_DOUBLE_EQ(*loss / 6, std::log(2.0));
  EXPECT_EQ(sums.chosen, 0);
  EXPECT_EQ(sums.rejected, 0);
  EXPECT_EQ(sums.preferred, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Families, PreferenceNumericsTest,
    ::testing::Combine(::testing::ValuesIn(PreferenceFamilies()),
                       ::testing::Values(Setting{"whole", 3, 0, StashPlace::kDevice},
                                         Setting{"micro_batches", 1, 0, StashPlace::kHost, 64},
                                         Setting{"sweeps_in_chunks", 2, 1, StashPlace::kHost, 32})),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

}  // namespace
}  // namespace megatrain

// Logits, loss, gradient norm and every gradient of each family against transformers, through the
// pipeline: tiles, lanes, sweeps, slabs. Linked with the device to test (device_under_test.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/numerics/trainer_numerics_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// All ways in: training, evaluation, logits. Kernels do not check.
TEST_P(TrainerNumericsTest, TokensThatTheModelHasNotAreRefused) {
  Start(Precision::kFp32);
  const int32_t vocabulary = static_cast<int32_t>(layout_.model.vocabulary);
  const auto expect_refused = [&](const Batch& batch, int32_t id) {
    for (const absl::Status& status :
         {trainer_->Submit(batch, 1e-3), trainer_->EvaluateLossSum(batch).status(),
          trainer_->Logits(batch, {{0, 1}}).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(absl::StrCat("token ", id, " at position 3 of sequence 1")),
                        HasSubstr(absl::StrCat("ids 0 to ", vocabulary - 1))));
    }
    EXPECT_EQ(trainer_->in_flight(), 0);
  };
  for (const int32_t id : {vocabulary, -1, std::numeric_limits<int32_t>::max()}) {
    std::vector<Sequence> sequences = reference_.batch.sequences;
    sequences[1].input_ids[3] = id;
    expect_refused(StepOf(sequences, 1), id);
    sequences = reference_.batch.sequences;
    sequences[1].labels[3] = id;
    expect_refused(StepOf(sequences, 1), id);
  }
  EXPECT_GT(Step().loss, 0) << "nothing is left of them";
}

TEST_P(TrainerNumericsTest, Fp32) {
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kFp32));
  const BatchReference& expected = reference_.fp32;
  CompareLogits(expected, 1e-5);
  const absl::StatusOr<double> evaluated = trainer_->EvaluateLossSum(ReferenceStep());
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_NEAR(*evaluated / reference_.batch.predictions / expected.loss, 1, 1e-5);
  const StepRecord record = Step();
  EXPECT_NEAR(record.loss / expected.loss, 1, 1e-5);
  EXPECT_NEAR(record.gradient_norm / expected.gradient_norm, 1, 1e-5);
  EXPECT_EQ(record.tokens, reference_.batch.predictions);
  size_t elements = 0, expected_elements = 0;
  ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
    if (tensor.is_never_trained()) return;
    ASSERT_TRUE(expected.gradients.contains(tensor.name)) << tensor.name;
    const std::vector<float> gradient = Gradient(tensor, tile);
    EXPECT_LE(RelativeError(gradient, Part(expected.gradients, tensor)), 1e-4) << tensor.name;
    elements += gradient.size();
  });
  for (const auto& [name, gradient] : expected.gradients) expected_elements += gradient.size();
  EXPECT_EQ(elements, expected_elements);
}

TEST_P(TrainerNumericsTest, Bf16) {
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kBf16));
  const BatchReference& expected = reference_.bf16;
  CompareLogits(expected, Bf16ErrorBound(expected.logits_error, expected.logits.size()));
  const StepRecord record = Step();
  EXPECT_NEAR(record.loss / expected.loss, 1, 3e-3);
  EXPECT_NEAR(record.gradient_norm / expected.gradient_norm, 1, 1e-2);
  SmallTensors small;
  ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
    if (tensor.is_never_trained()) return;
    const std::vector<float> gradient = Part(expected.gradients, tensor);
    const double error = RelativeError(Gradient(tensor, tile), gradient);
    const double transformers_error = expected.gradient_errors.at(tensor.name);
    EXPECT_LE(error, Bf16ErrorBound(transformers_error, gradient.size())) << tensor.name;
    small.Add(error, transformers_error, gradient.size());
  });
  EXPECT_LE(small.Ratio(), 1.25) << "norms and biases together";
}

INSTANTIATE_TEST_SUITE_P(
    Families, TrainerNumericsTest,
    ::testing::Combine(
        ::testing::ValuesIn(ReferenceFamilies()),
        ::testing::Values(Setting{"whole", 3, 0, StashPlace::kDevice, RecomputeMode::kNone},
                          Setting{"micro_batches", 1, 0, StashPlace::kHost, RecomputeMode::kAll},
                          Setting{"sweeps_in_chunks", 1, 2, StashPlace::kHost, RecomputeMode::kAuto,
                                  13, 3})),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

}  // namespace
}  // namespace megatrain

// Twenty AdamW steps of each family, with and without clipping, against transformers + PyTorch.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

class LossCurveTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  const ModelReference reference_ = LoadModelReference(std::get<0>(GetParam()));
  const bool clipped_ = std::get<1>(GetParam());
};

TEST_P(LossCurveTest, Fp32) {
  const JobRun run =
      Train(CurveJob(reference_, Precision::kFp32, clipped_, FreshDirectory("fp32")));
  ASSERT_TRUE(run.status.ok()) << run.status;
  const LossCurve curve = run.curve(), &expected = reference_.fp32_curve[clipped_],
                  &exact = reference_.fp64_curve[clipped_];
  EXPECT_LE(CurveDistance(curve.losses, expected.losses),
            std::max(1e-4, 3 * CurveDistance(expected.losses, exact.losses)));
  EXPECT_LE(CurveDistance(curve.gradient_norms, expected.gradient_norms),
            std::max(1e-4, 3 * CurveDistance(expected.gradient_norms, exact.gradient_norms)));
  for (size_t k = 0; k < run.records.size(); ++k) {
    const StepRecord& record = run.records[k];
    const CurveSettings& settings = reference_.curve_settings;
    EXPECT_EQ(record.step, static_cast<int64_t>(k) + 1);
    EXPECT_DOUBLE_EQ(record.learning_rate,
                     settings.learning_rate * std::min(1.0, (k + 1.0) / settings.warmup_steps));
    EXPECT_EQ(record.tokens, settings.global_batch * (settings.sequence_length - 1));
    EXPECT_EQ(record.input_tokens, settings.global_batch * settings.sequence_length);
  }
}

// The deviation from FP32 is at most 1.5 times that of transformers in BF16 on an FP32 master.
TEST_P(LossCurveTest, Bf16) {
  const JobRun run =
      Train(CurveJob(reference_, Precision::kBf16, clipped_, FreshDirectory("bf16")));
  ASSERT_TRUE(run.status.ok()) << run.status;
  const LossCurve curve = run.curve(), &fp32 = reference_.fp32_curve[clipped_],
                  &bf16 = reference_.bf16_curve[clipped_];
  const double deviation = CurveDeviation(curve.losses, fp32.losses);
  const double allowed = 1.5 * CurveDeviation(bf16.losses, fp32.losses);
  RecordProperty("deviation_over_transformers", std::to_string(1.5 * deviation / allowed));
  EXPECT_LE(deviation, allowed);
  EXPECT_LE(CurveDistance(curve.gradient_norms, fp32.gradient_norms), 3e-2);
}

INSTANTIATE_TEST_SUITE_P(Families, LossCurveTest,
                         ::testing::Combine(::testing::ValuesIn(ReferenceFamilies()),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_clipped" : "_unclipped");
                         });

}  // namespace
}  // namespace megatrain

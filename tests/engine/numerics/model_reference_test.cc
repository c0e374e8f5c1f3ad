// The references are whole, and none of what they are compared by is trivial.
#include "tests/engine/numerics/model_reference.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megatrain {
namespace {

class ModelReferenceTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelReferenceTest, IsWhole) {
  const ModelReference reference = LoadModelReference(GetParam());
  EXPECT_GT(reference.batch.predictions, 100);
  EXPECT_LT(reference.batch.input_tokens, 450);  // there is padding
  for (const BatchReference* batch : {&reference.fp32, &reference.bf16}) {
    double squares = 0;
    for (const auto& [name, gradient] : batch->gradients) {
      double sum = 0;
      for (const float g : gradient) sum += static_cast<double>(g) * g;
      EXPECT_GT(sum, 0) << name;
      squares += sum;
      ASSERT_TRUE(batch->gradient_errors.contains(name)) << name;
      EXPECT_GT(batch->gradient_errors.at(name), 0) << name;
    }
    EXPECT_EQ(batch->gradients.size(), batch->gradient_errors.size());
    EXPECT_NEAR(std::sqrt(squares) / batch->gradient_norm, 1, 1e-6);
    EXPECT_EQ(batch->logits.size() % reference.logit_rows.size(), 0u);
  }
  const size_t steps = reference.curve_settings.steps;
  for (const int clipped : {0, 1}) {
    EXPECT_EQ(reference.fp32_curve[clipped].losses.size(), steps);
    EXPECT_GT(
        CurveDeviation(reference.bf16_curve[clipped].losses, reference.fp32_curve[clipped].losses),
        0);
    EXPECT_EQ(
        CurveDistance(reference.fp32_curve[clipped].losses, reference.fp32_curve[clipped].losses),
        0);
  }
  // Clipping at a norm of 1 acts.
  for (const double norm : reference.fp32_curve[1].gradient_norms) EXPECT_GT(norm, 1);
}

INSTANTIATE_TEST_SUITE_P(Families, ModelReferenceTest, ::testing::ValuesIn(ReferenceFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatrain

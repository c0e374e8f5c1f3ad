// The reference's gradients against differences of the reference's own results. Whatever the
// devices compute is compared with the reference, so that its gradients are checked once, here.
#include "engine/device/reference_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "tests/engine/device/kernels_under_test.h"

namespace megatrain {
namespace {

using Floats = std::vector<float>;

class ReferenceGradientsTest : public testing::Test {
 protected:
  Floats Random(int64_t n, double deviation = 1.0) { return Normal(random_, n, deviation); }

  // Expects `gradient` to be the gradient by `x` of sum(dy * forward()), which reads x.
  static void ExpectGradient(const Floats& gradient, Floats& x, const Floats& dy,
                             const std::function<Floats()>& forward) {
    ASSERT_EQ(gradient.size(), x.size());
    const auto weighted = [&] {
      const Floats y = forward();
      return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
    };
    double difference = 0, norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      // Central: the error is that of the third derivative, and of FP32 results.
      constexpr float kStep = 1e-2f;
      const float before = x[i], above = before + kStep, below = before - kStep;
      x[i] = above;
      const double up = weighted();
      x[i] = below;
      const double down = weighted();
      x[i] = before;
      const double slope = (up - down) / (double{above} - double{below});
      difference += (slope - gradient[i]) * (slope - gradient[i]);
      norm += slope * slope;
    }
    EXPECT_GT(norm, 0);
    EXPECT_LE(std::sqrt(difference / norm), 5e-4);
  }

  ReferenceKernels kernels_;
  NoStream stream_;

 private:
  std::mt19937_64 random_{17};
};

TEST_F(ReferenceGradientsTest, RmsNorm) {
  constexpr int64_t kRows = 3, kGroups = 2, kWidth = 7, kStride = kGroups * kWidth + 3;
  for (const bool weighted : {true, false}) {
    for (const bool one_plus : {true, false}) {
      Floats x = Random(kRows * kStride), weight = Random(kWidth);
      const Floats dy = Random(kRows * kStride), addend = Random(kRows * kStride);
      Floats rstd(kRows * kGroups);
      const auto forward = [&] {
        Floats y(dy.size());
        EXPECT_TRUE(kernels_
                        .RmsNorm(stream_, {.rows = kRows,
                                           .groups = kGroups,
                                           .width = kWidth,
                                           .epsilon = 1e-3f,
                                           .x = x.data(),
                                           .x_stride = kStride,
                                           .weight = weighted ? weight.data() : nullptr,
                                           .y = y.data(),
                                           .y_stride = kStride,
                                           .rstd = rstd.data(),
                                           .one_plus_weight = one_plus,
                                           .addend = addend.data()})
                        .ok());
        return y;
      };
      forward();
      Floats dx(x.size()), dweight(weight.size());
      const Floats kept = rstd;
      ASSERT_TRUE(kernels_
                      .RmsNormBackward(stream_, {.rows = kRows,
                                                 .groups = kGroups,
                                                 .width = kWidth,
                                                 .x = x.data(),
                                                 .x_stride = kStride,
                                                 .weight = weighted ? weight.data() : nullptr,
                                                 .rstd = kept.data(),
                                                 .dy = dy.data(),
                                                 .dy_stride = kStride,
                                                 .dx = dx.data(),
                                                 .dx_stride = kStride,
                                                 .dweight = dweight.data(),
                                                 .one_plus_weight = one_plus})
                      .ok());
      ExpectGradient(dx, x, dy, forward);
      if (weighted) ExpectGradient(dweight, weight, dy, forward);
    }
  }
}

// The inverse rotation is the gradient.
TEST_F(ReferenceGradientsTest, Rope) {
  constexpr int64_t kTokens = 3, kHeads = 2, kHeadDim = 10, kRotaryDim = 6;
  const std::vector<int32_t> positions = {2, 0, 1};
  const Floats cosine = Random(3 * kRotaryDim / 2), sine = Random(3 * kRotaryDim / 2);
  for (const bool interleaved : {false, true}) {
    Floats x = Random(kTokens * kHeads * kHeadDim);
    const Floats dy = Random(kTokens * kHeads * kHeadDim);
    const auto rotate = [&](Floats of, bool inverse) {
      EXPECT_TRUE(kernels_
                      .Rope(stream_, {.tokens = kTokens,
                                      .heads = kHeads,
                                      .head_dim = kHeadDim,
                                      .rotary_dim = kRotaryDim,
                                      .interleaved = interleaved,
                                      .x = of.data(),
                                      .stride = kHeads * kHeadDim,
                                      .positions = positions.data(),
                                      .cosine = cosine.data(),
                                      .sine = sine.data(),
                                      .inverse = inverse})
                      .ok());
      return of;
    };
    ExpectGradient(rotate(dy, true), x, dy, [&] { return rotate(x, false); });
  }
}

// A difference over a limit is no derivative: the operands keep away from it.
TEST_F(ReferenceGradientsTest, Glu) {
  constexpr int64_t kTokens = 4, kWidth = 9;
  constexpr float kLimit = 0.8f, kSlope = 1.702f;
  for (const GluActivation activation :
       {GluActivation::kSilu, GluActivation::kGeluTanh, GluActivation::kClampedSilu}) {
    Floats gate_up = Random(kTokens * 2 * kWidth);
    for (float& value : gate_up) {
      if (std::abs(std::abs(value) - kLimit) < 0.05f) value *= 1.25f;
    }
    Floats dgate_up(gate_up.size());
    const Floats dout = Random(kTokens * kWidth);
    const auto forward = [&] {
      Floats out(dout.size());
      EXPECT_TRUE(kernels_
                      .Glu(stream_, {DType::kF32, kTokens, kWidth, gate_up.data(), out.data(),
                                     activation, kLimit, kSlope})
                      .ok());
      return out;
    };
    Floats overwritten = dout;
    ASSERT_TRUE(
        kernels_
            .GluBackward(stream_, {DType::kF32, kTokens, kWidth, gate_up.data(), overwritten.data(),
                                   dgate_up.data(), activation, kLimit, kSlope})
            .ok());
    EXPECT_EQ(overwritten, forward());
    ExpectGradient(dgate_up, gate_up, dout, forward);
  }
}

TEST_F(ReferenceGradientsTest, SigmoidGate) {
  constexpr int64_t kTokens = 3, kHeads = 2, kHeadDim = 5, kSize = kTokens * kHeads * kHeadDim;
  Floats x = Random(kSize), gate = Random(2 * kSize), dx(x.size()), dgate(gate.size());
  const Floats dout = Random(kSize);
  SigmoidGateArgs args{.tokens = kTokens,
                       .heads = kHeads,
                       .head_dim = kHeadDim,
                       .x = x.data(),
                       .gate = gate.data() + kHeadDim,
                       .gate_stride = 2 * kHeads * kHeadDim,
                       .gate_head_stride = 2 * kHeadDim};
  const auto forward = [&] {
    Floats out(dout.size());
    args.out = out.data();
    EXPECT_TRUE(kernels_.SigmoidGate(stream_, args).ok());
    return out;
  };
  Floats overwritten = dout;
  ASSERT_TRUE(kernels_
                  .SigmoidGateBackward(stream_, {.forward = args,
                                                 .dout = overwritten.data(),
                                                 .dx = dx.data(),
                                                 .dgate = dgate.data() + kHeadDim,
                                                 .dgate_stride = 2 * kHeads * kHeadDim,
                                                 .dgate_head_stride = 2 * kHeadDim})
                  .ok());
  EXPECT_EQ(overwritten, forward());
  ExpectGradient(dx, x, dout, forward);
  ExpectGradient(dgate, gate, dout, forward);
}

// The row of the padding id has no gradient, although the table's row is used.
TEST_F(ReferenceGradientsTest, Embedding) {
  constexpr int64_t kHidden = 4, kVocabulary = 5, kPadding = 1;
  constexpr float kScale = 2.5f;
  const std::vector<int32_t> ids = {3, 0, 3, 1}, sorted = {1, 3, 0, 2};
  const int64_t tokens = static_cast<int64_t>(ids.size());
  for (const int64_t padding_id : {int64_t{-1}, kPadding}) {
    Floats table = Random(kVocabulary * kHidden), dtable(table.size());
    const Floats dout = Random(tokens * kHidden);
    const auto forward = [&] {
      Floats out(dout.size());
      EXPECT_TRUE(kernels_
                      .Embedding(stream_, {DType::kF32, tokens, kHidden, kVocabulary, ids.data(),
                                           table.data(), out.data(), kScale})
                      .ok());
      for (int64_t i = 0; padding_id >= 0 && i < kHidden; ++i) {
        out[static_cast<size_t>(3 * kHidden + i)] = 0;  // the token of the padding id
      }
      return out;
    };
    ASSERT_TRUE(kernels_
                    .EmbeddingBackward(stream_, {.tokens = tokens,
                                                 .hidden = kHidden,
                                                 .vocabulary = kVocabulary,
                                                 .ids = ids.data(),
                                                 .sorted_positions = sorted.data(),
                                                 .dout = dout.data(),
                                                 .dtable = dtable.data(),
                                                 .add = false,
                                                 .scale = kScale,
                                                 .padding_id = padding_id})
                    .ok());
    ExpectGradient(dtable, table, dout, forward);
  }
}

TEST_F(ReferenceGradientsTest, CrossEntropy) {
  constexpr int64_t kTokens = 3, kVocabulary = 6;
  constexpr float kScale = 0.25f;
  const std::vector<int32_t> labels = {4, -100, 0};
  for (const float softcap : {0.0f, 1.5f}) {
    Floats logits = Random(kTokens * kVocabulary, 2.0);
    const Floats weights = Random(kTokens);
    const auto run = [&](Floats rows, bool loss_only, Floats* losses) {
      EXPECT_TRUE(kernels_
                      .CrossEntropy(stream_, {.tokens = kTokens,
                                              .vocabulary = kVocabulary,
                                              .logits = rows.data(),
                                              .logits_stride = kVocabulary,
                                              .labels = labels.data(),
                                              .scale = kScale,
                                              .weights = weights.data(),
                                              .loss_only = loss_only,
                                              .losses = losses->data(),
                                              .softcap = softcap})
                      .ok());
      return rows;
    };
    Floats losses(kTokens), by_loss;
    for (const float weight : weights) by_loss.push_back(weight * kScale);
    ExpectGradient(run(logits, false, &losses), logits, by_loss, [&] {
      Floats of(kTokens);
      run(logits, true, &of);
      return of;
    });
  }
}

}  // namespace
}  // namespace megatrain

// The suite's tests of the loss and its gradient.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

// Each by itself: none may hide behind a larger one.
void ExpectLosses(const Operands::Operand& got, const Operands::Operand& want, float softcap) {
  // A capped logit is good to some units in the last place of the cap.
  const double of_logits = 2e-7 * softcap;
  for (size_t i = 0; i < want.bytes.size() / sizeof(float); ++i) {
    EXPECT_NEAR(ValueOf(got, i), ValueOf(want, i), 1e-6 + of_logits + 1e-6 * ValueOf(want, i))
        << "the loss of token " << i;
  }
}

struct OneToken {
  double loss;
  Operands::Operand gradient;  // of more elements than the vocabulary has
};
OneToken CrossEntropyOfOneToken(KernelsUnderTest& device, DType dtype, uint64_t seed,
                                const std::vector<float>& logits_of, int32_t label) {
  Operands operands(seed);
  const auto vocabulary = static_cast<int64_t>(logits_of.size());
  const size_t logits = operands.Values(DType::kF32, logits_of);
  const size_t labels = operands.Ints({label});
  const size_t losses = operands.Random(DType::kF32, 1);
  const auto got =
      RunOn(device, operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        return kernels.CrossEntropy(stream, {.dtype = dtype,
                                             .tokens = 1,
                                             .vocabulary = vocabulary,
                                             .logits = static_cast<float*>(p[logits]),
                                             .logits_stride = vocabulary,
                                             .labels = static_cast<int32_t*>(p[labels]),
                                             .scale = 1,
                                             .losses = static_cast<float*>(p[losses])});
      });
  const auto kind = dtype == DType::kF32 ? Operands::Operand::kF32 : Operands::Operand::kBF16;
  return {ValueOf(got[losses], 0), {kind, got[logits].bytes}};
}

}  // namespace

TEST_P(KernelsSuite, CrossEntropy) {
  struct Case {
    int64_t vocabulary, padding;
  };
  for (const Case& c :
       {Case{2, 3}, Case{259, 3}, Case{9001, 3}, Case{4, 0}, Case{260, 4}, Case{20004, 0}}) {
    const int64_t vocabulary = c.vocabulary, tokens = 11, stride = vocabulary + c.padding;
    if (!SizeIsTested(tokens * vocabulary)) continue;
    std::vector<int32_t> labels_of;
    for (int64_t t = 0; t < tokens; ++t) {
      labels_of.push_back(t % 4 == 3 ? -100 : static_cast<int32_t>((t * 7919) % vocabulary));
    }
    Operands operands(static_cast<uint64_t>(vocabulary));
    const size_t logits = operands.Random(DType::kF32, tokens * stride, 5.0);
    const size_t labels = operands.Ints(labels_of);
    const size_t losses = operands.Random(DType::kF32, tokens);
    const size_t weights = operands.Random(DType::kF32, tokens);
    for (int bits = 0; bits < 6; ++bits) {
      const bool loss_only = bits % 2 == 1, weighted = bits / 2 == 2;
      const float softcap = bits / 2 == 0 ? 0.0f : 8.0f;  // some logits are far beyond it
      const KernelCall run = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        return kernels.CrossEntropy(
            stream, {.dtype = dtype(),
                     .tokens = tokens,
                     .vocabulary = vocabulary,
                     .logits = static_cast<float*>(p[logits]),
                     .logits_stride = stride,
                     .labels = static_cast<int32_t*>(p[labels]),
                     .scale = 1.0f / 8,
                     .weights = weighted ? static_cast<float*>(p[weights]) : nullptr,
                     .loss_only = loss_only,
                     .losses = static_cast<float*>(p[losses]),
                     .softcap = softcap});
      };
      SCOPED_TRACE(testing::Message()
                   << tokens << "x" << vocabulary << ", stride " << stride << ", loss_only "
                   << loss_only << ", softcap " << softcap << ", weighted " << weighted);
      const auto got = RunOn(device(), operands, run), want = RunOnReference(operands, run);
      ExpectLosses(got[losses], want[losses], softcap);
      if (loss_only) continue;
      // The gradients begin where the rows of logits did.
      const DType type = dtype();
      const auto gradients = [&](const Operands::Operand& rows) {
        Operands::Operand cut{
            type == DType::kF32 ? Operands::Operand::kF32 : Operands::Operand::kBF16, {}};
        for (int64_t t = 0; t < tokens; ++t) {
          const auto begin = rows.bytes.begin() + static_cast<std::ptrdiff_t>(t * stride * 4);
          cut.bytes.insert(cut.bytes.end(), begin,
                           begin + static_cast<std::ptrdiff_t>(DTypeBytes(type) * vocabulary));
        }
        return cut;
      };
      const Operands::Operand a = gradients(got[logits]);
      ExpectClose(a, gradients(want[logits]), tolerance(),
                  "the gradient, seed " + std::to_string(operands.seed()));
      for (size_t j = 0; j < static_cast<size_t>(tokens * vocabulary); ++j) {
        if (labels_of[j / static_cast<size_t>(vocabulary)] < 0) {
          ASSERT_EQ(ValueOf(a, j), 0.0) << "element " << j << " of a token without a label";
        }
      }
    }
  }
}

// A label that cannot be is -inf; a NaN must not go unseen.
TEST_P(KernelsSuite, CrossEntropyOfLogitsThatAreNotFinite) {
  for (int64_t vocabulary : {260, 20004}) {
    if (!SizeIsTested(vocabulary)) continue;
    for (float bad : {-HUGE_VALF, std::nanf("")}) {
      std::mt19937_64 random(11);
      std::vector<float> logits_of = Normal(random, vocabulary, 5.0);
      for (int64_t i = 0; i < vocabulary; ++i) {
        if (std::isinf(bad) ? i >= 100 : i == vocabulary - 3) {
          logits_of[static_cast<size_t>(i)] = bad;
        }
      }
      double sum = 0;
      for (float logit : logits_of) sum += std::exp(static_cast<double>(logit));
      const double want = std::log(sum) - static_cast<double>(logits_of[5]);
      const double loss = CrossEntropyOfOneToken(device(), dtype(), 11, logits_of, 5).loss;
      if (std::isnan(bad)) {
        EXPECT_TRUE(std::isnan(loss));
      } else {
        EXPECT_NEAR(loss, want, 2e-6 * want);
      }
    }
  }
}

// What all logits have in common does not count, be it far from 0 on either side; and the largest
// may be the first or the last one.
TEST_P(KernelsSuite, CrossEntropyOfLogitsFarFromZero) {
  for (const int64_t vocabulary : {2, 259, 260, 9001}) {
    if (!SizeIsTested(vocabulary)) continue;
    for (const float shift : {-1000.0f, 1000.0f}) {
      for (const bool last : {false, true}) {
        SCOPED_TRACE(testing::Message() << vocabulary << " logits about " << shift
                                        << (last ? ", the last" : ", the first") << " is largest");
        std::mt19937_64 random(13);
        std::vector<float> logits_of = Normal(random, vocabulary, 5.0);
        for (float& logit : logits_of) logit += shift;
        const auto largest = static_cast<int32_t>(last ? vocabulary - 1 : 0);
        const auto other = static_cast<int32_t>(last ? 0 : vocabulary - 1);
        logits_of[static_cast<size_t>(largest)] = shift + 60;
        double sum = 0;
        for (const float logit : logits_of) {
          sum += std::exp(static_cast<double>(logit) - (shift + 60));
        }
        for (const int32_t label : {largest, other}) {
          const double logit = logits_of[static_cast<size_t>(label)];
          const double want = std::log(sum) + (shift + 60) - logit;
          const OneToken got = CrossEntropyOfOneToken(device(), dtype(), 13, logits_of, label);
          EXPECT_NEAR(got.loss, want, 1e-3) << "label " << label;
          EXPECT_NEAR(ValueOf(got.gradient, static_cast<size_t>(label)), std::exp(-want) - 1, 4e-3)
              << "label " << label;
        }
      }
    }
  }
}

// A masked token has no loss and no gradient, whatever its logits are.
TEST_P(KernelsSuite, CrossEntropyOfAMaskedTokenIsZero) {
  for (float bad : {HUGE_VALF, std::nanf("")}) {
    std::mt19937_64 random(12);
    std::vector<float> logits_of = Normal(random, 260, 5.0);
    logits_of[7] = bad;
    const OneToken got = CrossEntropyOfOneToken(device(), dtype(), 12, logits_of, -1);
    EXPECT_EQ(got.loss, 0);
    for (size_t i = 0; i < logits_of.size(); ++i) EXPECT_EQ(ValueOf(got.gradient, i), 0) << i;
  }
}

}  // namespace megatrain

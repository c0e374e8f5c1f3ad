// The suite's tests of losses of pairs of answers, and of the weights that give their gradient.
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

std::vector<double> DoublesIn(const Operands::Operand& operand) {
  std::vector<double> values(operand.bytes.size() / sizeof(double));
  std::memcpy(values.data(), operand.bytes.data(), operand.bytes.size());
  return values;
}

// Pairs of these lengths, one after the other: the chosen answer's document, then the other's.
std::vector<int32_t> BoundsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> bounds;
  int32_t at = 2;  // tokens of no pair come first
  for (const int32_t length : lengths) {
    bounds.insert(bounds.end(), {at, at + length});
    at += length;
  }
  return bounds;
}

}  // namespace

TEST_P(KernelsSuite, PreferenceLoss) {
  const std::vector<int32_t> lengths = {2, 2, 7, 40, 300, 1, 513, 999, 33, 31};
  const std::vector<int32_t> bounds_of = BoundsOf(lengths);
  const int64_t tokens = bounds_of.back() + 3, pairs = static_cast<int64_t>(lengths.size()) / 2;
  std::vector<int32_t> labels_of(static_cast<size_t>(tokens), 1);
  for (size_t t = 0; t < labels_of.size(); t += 3) labels_of[t] = -100;
  for (const int32_t bound : bounds_of) labels_of[static_cast<size_t>(bound)] = 1;
  for (const PreferenceLossKind kind : {PreferenceLossKind::kSigmoid, PreferenceLossKind::kRobust,
                                        PreferenceLossKind::kHinge, PreferenceLossKind::kIpo}) {
    for (const double smoothing : {0.0, 0.2}) {
      SCOPED_TRACE(testing::Message()
                   << "kind " << static_cast<int>(kind) << ", smoothing " << smoothing);
      Operands operands(17 + static_cast<uint64_t>(kind));
      std::vector<float> losses_of = Normal(operands.random(), tokens, 1.0);
      for (float& loss : losses_of) loss = std::abs(loss);
      std::vector<double> reference_of;
      // Near the policy's, so that differences are small, and far from it.
      for (int64_t pair = 0; pair < pairs; ++pair) {
        for (int side = 0; side < 2; ++side) {
          double logp = 0;
          for (int32_t t = bounds_of[static_cast<size_t>(4 * pair + 2 * side)];
               t < bounds_of[static_cast<size_t>(4 * pair + 2 * side + 1)]; ++t) {
            if (labels_of[static_cast<size_t>(t)] >= 0) logp -= losses_of[static_cast<size_t>(t)];
          }
          reference_of.push_back(logp + 5 * static_cast<double>(pair) * (side == 0 ? 1 : -1));
        }
      }
      reference_of[2] = 1e4;  // the chosen answer has become impossible
      const size_t losses = operands.Values(DType::kF32, losses_of);
      const size_t weights = operands.Random(DType::kF32, tokens);
      const size_t labels = operands.Ints(labels_of), bounds = operands.Ints(bounds_of);
      const size_t reference = operands.Doubles(reference_of);
      const size_t results = operands.Raw(pairs * int64_t{sizeof(PreferenceResult)});
      for (const bool weighted : {true, false}) {
        const KernelCall run = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          PreferenceLossArgs args;
          args.objective = {kind, 0.3, smoothing};
          args.pairs = pairs;
          args.bounds = static_cast<int32_t*>(p[bounds]);
          args.labels = static_cast<int32_t*>(p[labels]);
          args.losses = static_cast<float*>(p[losses]);
          args.reference = static_cast<double*>(p[reference]);
          args.scale = 1.0 / 7;
          args.results = static_cast<PreferenceResult*>(p[results]);
          if (weighted) args.weights = static_cast<float*>(p[weights]);
          return kernels.PreferenceLoss(stream, args);
        };
        const auto got = RunOn(device(), operands, run), want = RunOnReference(operands, run);
        const std::vector<double> a = DoublesIn(got[results]), b = DoublesIn(want[results]);
        for (size_t i = 0; i < b.size(); ++i) {
          // The reference's logarithm of a small probability may be infinite.
          if (std::isinf(b[i])) {
            EXPECT_GT(a[i], 700) << "result " << i;
            EXPECT_TRUE(std::isfinite(a[i])) << "result " << i;
          } else {
            EXPECT_NEAR(a[i], b[i], 1e-12 + 1e-9 * std::abs(b[i])) << "result " << i;
          }
        }
        for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
          const double value = ValueOf(want[weights], t);
          EXPECT_NEAR(ValueOf(got[weights], t), value, 1e-9 + 1e-6 * std::abs(value))
              << "the weight of token " << t;
        }
      }
    }
  }
}

// A loss that is not a number is not hidden by any kind of comparison.
TEST_P(KernelsSuite, PreferenceLossOfLossesThatAreNotFinite) {
  for (const PreferenceLossKind kind : {PreferenceLossKind::kSigmoid, PreferenceLossKind::kRobust,
                                        PreferenceLossKind::kHinge, PreferenceLossKind::kIpo}) {
    Operands operands(3);
    const size_t losses = operands.Values(DType::kF32, {1, std::nanf(""), 1, 1});
    const size_t labels = operands.Ints({1, 1, 1, 1}), bounds = operands.Ints({0, 2, 2, 4});
    const size_t reference = operands.Doubles({0, 0}), results = operands.Raw(24);
    const auto got = RunOn(device(), operands,
                           [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                             PreferenceLossArgs args;
                             args.objective.loss = kind;
                             args.pairs = 1;
                             args.bounds = static_cast<int32_t*>(p[bounds]);
                             args.labels = static_cast<int32_t*>(p[labels]);
                             args.losses = static_cast<float*>(p[losses]);
                             args.reference = static_cast<double*>(p[reference]);
                             args.results = static_cast<PreferenceResult*>(p[results]);
                             return kernels.PreferenceLoss(stream, args);
                           });
    EXPECT_TRUE(std::isnan(DoublesIn(got[results])[2])) << static_cast<int>(kind);
  }
}

// The gradient of each token has the weight of the token.
TEST_P(KernelsSuite, CrossEntropyWithWeights) {
  constexpr int64_t kTokens = 6, kVocabulary = 260;
  const auto gradients = [&](const std::vector<float>& weights_of, float scale, int64_t token) {
    Operands operands(5);
    const size_t logits = operands.Random(DType::kF32, kTokens * kVocabulary, 2.0);
    const size_t labels = operands.Ints({3, -100, 7, 200, 0, 259});
    const size_t losses = operands.Random(DType::kF32, kTokens);
    const size_t weights = operands.Values(DType::kF32, weights_of);
    const KernelCall run = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
      return kernels.CrossEntropy(
          stream, {.dtype = dtype(),
                   .tokens = kTokens,
                   .vocabulary = kVocabulary,
                   .logits = static_cast<float*>(p[logits]),
                   .logits_stride = kVocabulary,
                   .labels = static_cast<int32_t*>(p[labels]),
                   .scale = scale,
                   .weights = weights_of.empty() ? nullptr : static_cast<float*>(p[weights]),
                   .losses = static_cast<float*>(p[losses])});
    };
    const auto got = RunOn(device(), operands, run);
    Operands::Operand row{
        dtype() == DType::kF32 ? Operands::Operand::kF32 : Operands::Operand::kBF16, {}};
    const auto begin = got[logits].bytes.begin() + token * kVocabulary * 4;
    row.bytes.assign(begin, begin + kVocabulary * DTypeBytes(dtype()));
    return row;
  };
  const std::vector<float> weights = {2, 0.5f, -0.25f, 3, 0, 1};
  for (int64_t token = 0; token < kTokens; ++token) {
    const Operands::Operand row = gradients(weights, 0.5f, token);
    const float weight = weights[static_cast<size_t>(token)];
    if (token == 1 || weight == 0) {
      for (size_t i = 0; i < kVocabulary; ++i) ASSERT_EQ(ValueOf(row, i), 0.0) << "token " << token;
      continue;
    }
    ExpectClose(row, gradients({}, 0.5f * weight, token), tolerance(),
                "token " + std::to_string(token));
  }
}

}  // namespace megatrain

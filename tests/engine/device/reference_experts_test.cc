// The reference's kernels for mixtures of experts against values made by hand and against formulas
// in FP64 that are differentiated by differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/device/reference_kernels.h"
#include "tests/engine/device/expert_cases.h"

namespace megatrain {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
using Doubles = std::vector<double>;

struct Routed {
  Ints choice;
  Floats weights, entropy;
};

Routed Route(RouteArgs args) {
  Routed routed{Ints(static_cast<size_t>(args.tokens * args.chosen)),
                Floats(static_cast<size_t>(args.tokens * args.chosen)),
                Floats(static_cast<size_t>(args.tokens))};
  args.choice = routed.choice.data();
  args.weights = routed.weights.data();
  args.entropy = routed.entropy.data();
  ReferenceKernels reference;
  NoStream stream;
  EXPECT_TRUE(reference.Route(stream, args).ok());
  return routed;
}

void ExpectNear(const Floats& got, const Doubles& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

// Logarithms of small numbers, so that softmax gives tenths.
Floats Logs(const Floats& values) {
  Floats logs;
  for (float value : values) logs.push_back(std::log(value));
  return logs;
}

TEST(ReferenceExpertsTest, RouteBySoftmax) {
  const Floats logits = Logs({1, 4, 2, 3});
  RouteArgs args{.tokens = 1, .experts = 4, .chosen = 2, .logits = logits.data()};
  Routed routed = Route(args);
  EXPECT_EQ(routed.choice, (Ints{1, 3}));
  ExpectNear(routed.weights, {4.0 / 7, 3.0 / 7});
  ExpectNear(routed.entropy, {-0.1 * std::log(0.1) - 0.4 * std::log(0.4) - 0.2 * std::log(0.2) -
                              0.3 * std::log(0.3)});
  args.normalized = false;
  args.scale = 2;
  ExpectNear(Route(args).weights, {0.8, 0.6});
  args.scores = RouterScores::kSoftmaxOfChosen;
  ExpectNear(Route(args).weights, {8.0 / 7, 6.0 / 7});
}

TEST(ReferenceExpertsTest, RouteBySigmoidWithCorrectionAndGroups) {
  // Odds of 1, 3, 1/3, 1, 4, 1/4: scores of 0.5, 0.75, 0.25, 0.5, 0.8, 0.2.
  const Floats logits = Logs({1, 3, 1.0f / 3, 1, 4, 0.25f}), correction = {0, 0, 0.6f, 0, 0, 0};
  RouteArgs args{.tokens = 1,
                 .experts = 6,
                 .chosen = 2,
                 .scores = RouterScores::kSigmoid,
                 .logits = logits.data()};
  Routed routed = Route(args);
  EXPECT_EQ(routed.choice, (Ints{4, 1}));
  ExpectNear(routed.weights, {0.8 / 1.55, 0.75 / 1.55});
  double entropy = 0;
  for (double s : {0.5, 0.75, 0.25, 0.5, 0.8, 0.2}) entropy -= s / 3 * std::log(s / 3);
  ExpectNear(routed.entropy, {entropy});
  // The correction chooses; the weight is without it.
  args.correction = correction.data();
  args.normalized = false;
  routed = Route(args);
  EXPECT_EQ(routed.choice, (Ints{2, 4}));
  ExpectNear(routed.weights, {0.25, 0.8});
  // Groups {0, 1}, {2, 3}, {4, 5} have 1.25, 1.35 and 1.0.
  args.groups = 3;
  args.chosen_groups = 1;
  EXPECT_EQ(Route(args).choice, (Ints{2, 3}));
  args.chosen_groups = 2;
  EXPECT_EQ(Route(args).choice, (Ints{2, 1}));
}

TEST(ReferenceExpertsTest, RouteAmongEqualsAndNaNs) {
  const float nan = std::nanf("");
  const Floats logits = {2, 2, 2, 2, nan, 1, nan, 0, nan, nan, nan, nan};
  const Routed routed = Route({.tokens = 3, .experts = 4, .chosen = 3, .logits = logits.data()});
  EXPECT_EQ(routed.choice, (Ints{0, 1, 2, 1, 3, 0, 0, 1, 2}));
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(std::isnan(routed.weights[i]), i >= 3) << i;
  const Floats equal(6, 0.5f);
  EXPECT_EQ(Route({.tokens = 1,
                   .experts = 6,
                   .chosen = 2,
                   .groups = 3,
                   .chosen_groups = 2,
                   .logits = equal.data()})
                .choice,
            (Ints{0, 1}));
}

// sum(dweights * weights) + sum(dprobabilities * softmax(logits)) of one token in FP64, for the
// choice that was made.
double Objective(const RouteBackwardArgs& args, const Doubles& logits, const int32_t* choice) {
  const RouteArgs& f = args.forward;
  double sum = 0;
  for (double logit : logits) sum += std::exp(logit);
  Doubles s;
  double of_chosen = 0;
  for (int64_t j = 0; j < f.chosen; ++j) {
    const double logit = logits[static_cast<size_t>(choice[j])];
    s.push_back(f.scores == RouterScores::kSigmoid   ? 1 / (1 + std::exp(-logit))
                : f.scores == RouterScores::kSoftmax ? std::exp(logit) / sum
                                                     : std::exp(logit));
    of_chosen += s.back();
  }
  const bool divided = f.normalized || f.scores == RouterScores::kSoftmaxOfChosen;
  double result = 0;
  for (size_t j = 0; j < s.size(); ++j) {
    result += args.dweights[j] * f.scale * s[j] / (divided ? of_chosen : 1);
  }
  for (size_t e = 0; args.dprobabilities != nullptr && e < logits.size(); ++e) {
    result += args.dprobabilities[e] * std::exp(logits[e]) / sum;
  }
  return result;
}

TEST(ReferenceExpertsTest, RouteBackwardIsTheSlope) {
  std::mt19937_64 random(3);
  constexpr int64_t kExperts = 9, kChosen = 3;
  for (const RouterScores scores :
       {RouterScores::kSoftmax, RouterScores::kSoftmaxOfChosen, RouterScores::kSigmoid}) {
    for (int bits = 0; bits < 4; ++bits) {
      const Floats logits = Normal(random, kExperts, 1.5), dweights = Normal(random, kChosen, 1.0);
      const Floats dprobabilities = Normal(random, kExperts, 1.0);
      Floats dlogits(kExperts);
      RouteBackwardArgs args{.forward = {.tokens = 1,
                                         .experts = kExperts,
                                         .chosen = kChosen,
                                         .scores = scores,
                                         .normalized = (bits & 1) != 0,
                                         .scale = 1.75f,
                                         .logits = logits.data()},
                             .dweights = dweights.data(),
                             .dprobabilities = (bits & 2) != 0 ? dprobabilities.data() : nullptr,
                             .dlogits = dlogits.data()};
      Routed routed = Route(args.forward);
      args.forward.choice = routed.choice.data();
      args.forward.weights = routed.weights.data();
      ReferenceKernels reference;
      NoStream stream;
      ASSERT_TRUE(reference.RouteBackward(stream, args).ok());
      Doubles at(logits.begin(), logits.end());
      double largest = 0;
      for (size_t e = 0; e < at.size(); ++e) {
        constexpr double kStep = 1e-5;
        at[e] += kStep;
        const double above = Objective(args, at, routed.choice.data());
        at[e] -= 2 * kStep;
        const double below = Objective(args, at, routed.choice.data());
        at[e] = logits[e];
        const double slope = (above - below) / (2 * kStep);
        largest = std::max(largest, std::abs(slope));
        EXPECT_NEAR(dlogits[e], slope, 1e-7) << static_cast<int>(scores) << " " << bits;
      }
      EXPECT_GT(largest, 1e-2);
    }
  }
}

TEST(ReferenceExpertsTest, RouterSumsAddUp) {
  const Floats logits = Logs({1, 3, 1, 1});
  Doubles probability = {1, 2};
  ReferenceKernels reference;
  NoStream stream;
  ASSERT_TRUE(reference
                  .RouterSums(stream, {.tokens = 2,
                                       .experts = 2,
                                       .logits = logits.data(),
                                       .probability = probability.data()})
                  .ok());
  EXPECT_NEAR(probability[0], 1.75, 1e-6);
  EXPECT_NEAR(probability[1], 3.25, 1e-6);
}

// By expert, by token within an expert; a token's rows ascend whatever its choices' order.
TEST(ReferenceExpertsTest, SortAssignmentsIsStable) {
  const Ints choice = {3, 0, 1, 3, 0, 3};
  Ints offsets(5), assignments(6), rows(6);
  ReferenceKernels reference;
  NoStream stream;
  ASSERT_TRUE(reference
                  .SortAssignments(stream, {.tokens = 3,
                                            .experts = 4,
                                            .chosen = 2,
                                            .choice = choice.data(),
                                            .offsets = offsets.data(),
                                            .assignments = assignments.data(),
                                            .rows = rows.data()})
                  .ok());
  EXPECT_EQ(offsets, (Ints{0, 2, 3, 3, 6}));
  EXPECT_EQ(assignments, (Ints{1, 4, 2, 0, 3, 5}));
  EXPECT_EQ(rows, (Ints{0, 3, 2, 4, 1, 5}));
}

// Two tokens that both choose experts 0 and 1, the second token expert 1 first: the rows belong to
// assignments 0, 3, 1, 2.
TEST(ReferenceExpertsTest, RowsAreGatheredAddedAndWeighed) {
  const Ints assignments = {0, 3, 1, 2}, token_rows = {0, 2, 1, 3}, choice = {0, 1, 1, 0};
  const Floats x = {1, 2, 10, 20}, weights = {0.5f, 2, 3, 4};
  const ExpertRows range{.first = 1,
                         .rows = 3,
                         .tokens = 2,
                         .chosen = 2,
                         .assignments = assignments.data(),
                         .token_rows = token_rows.data()};
  ReferenceKernels reference;
  NoStream stream;
  Floats rows(6);
  ASSERT_TRUE(
      reference.GatherRows(stream, {.width = 2, .range = range, .x = x.data(), .out = rows.data()})
          .ok());
  EXPECT_EQ(rows, (Floats{10, 20, 1, 2, 10, 20}));
  ASSERT_TRUE(reference
                  .GatherRows(stream, {.width = 2,
                                       .range = range,
                                       .x = x.data(),
                                       .weights = weights.data(),
                                       .out = rows.data()})
                  .ok());
  EXPECT_EQ(rows, (Floats{40, 80, 2, 4, 30, 60}));
  Floats sum = {100, 200, 300, 400};
  ASSERT_TRUE(
      reference.AddRows(stream, {.width = 2, .range = range, .x = rows.data(), .sum = sum.data()})
          .ok());
  EXPECT_EQ(sum, (Floats{102, 204, 370, 540}));
  ASSERT_TRUE(reference
                  .AddRows(stream, {.width = 2,
                                    .range = range,
                                    .x = rows.data(),
                                    .weights = weights.data(),
                                    .sum = sum.data()})
                  .ok());
  EXPECT_EQ(sum, (Floats{106, 212, 620, 1040}));
  // Of the experts' biases {., 1} and {., 10}, and dy 1 a row.
  Floats dout = {1, 1, 2, 2, 1, -1}, dweights = {-1, -1, -1, -1};
  const Floats bias = {1, 10}, dy = {1, 1, 1};
  ASSERT_TRUE(reference
                  .WeighRows(stream, {.width = 2,
                                      .range = range,
                                      .weights = weights.data(),
                                      .out = rows.data(),
                                      .dout = dout.data(),
                                      .dweights = dweights.data(),
                                      .bias = bias.data(),
                                      .bias_width = 1,
                                      .dy = dy.data(),
                                      .choice = choice.data()})
                  .ok());
  EXPECT_EQ(dweights, (Floats{-1, 22, -20, 121}));
  EXPECT_EQ(dout, (Floats{4, 4, 4, 4, 3, -3}));
}

}  // namespace
}  // namespace megatrain

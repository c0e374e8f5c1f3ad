#include "engine/data/order/source_mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace megatrain {
namespace {

using ::testing::ElementsAre;

// Checks every beginning of two periods, and that PositionOf is At's inverse.
void ExpectFair(const std::vector<double>& weights) {
  const SourceMix mix(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> taken(weights.size(), 0);
  for (int64_t position = 0; position < 2 * mix.period(); ++position) {
    const SourceMix::Place place = mix.At(position);
    ASSERT_LT(place.source, weights.size());
    ASSERT_EQ(place.number, taken[place.source]++);
    for (size_t i = 0; i < weights.size(); ++i) {
      ASSERT_LT(std::abs(static_cast<double>(taken[i]) -
                         static_cast<double>(position + 1) * weights[i] / sum),
                1)
          << "source " << i << " at " << position;
    }
    if (position % 7 == 0) {
      ASSERT_EQ(mix.PositionOf(place.source, place.number), position);
    }
  }
}

TEST(SourceMixTest, EveryBeginningHasTheSharesWithinOne) {
  ExpectFair({1});
  ExpectFair({1, 1});
  ExpectFair({0.7, 0.3});
  ExpectFair({3, 1, 1});
  ExpectFair({1, 1, 1, 1, 1, 1, 1, 1, 1});
  ExpectFair({0.5, 0.25, 0.125, 0.0625, 0.0625});
  ExpectFair({100, 1, 1, 1, 1, 50, 7});
  ExpectFair({0.9, 0.001, 0.099});
}

// A run that a later version resumes goes on in the same order: these lists must never change.
TEST(SourceMixTest, TheOrderIsTheSameInEveryVersion) {
  const auto sources = [](const std::vector<double>& weights) {
    const SourceMix mix(weights);
    std::vector<int> order;
    for (int64_t p = 0; p < mix.period(); ++p) order.push_back(static_cast<int>(mix.At(p).source));
    return order;
  };
  EXPECT_THAT(sources({7, 2, 1}), ElementsAre(0, 0, 1, 0, 0, 2, 0, 0, 1, 0));
  EXPECT_THAT(sources({5, 3, 2}), ElementsAre(0, 1, 0, 2, 0, 1, 0, 2, 1, 0));
  EXPECT_THAT(sources({3, 1}), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(sources({1, 1, 1, 1}), ElementsAre(0, 1, 2, 3));
}

TEST(SourceMixTest, DecimalsAreExact) {
  EXPECT_THAT(SourceMix(std::vector<double>{0.7, 0.2, 0.1}).shares(), ElementsAre(7, 2, 1));
  EXPECT_THAT(SourceMix(std::vector<double>{2, 4}).shares(), ElementsAre(1, 2));
  EXPECT_THAT(SourceMix(std::vector<double>{0.333333, 0.666667}).shares(),
              ElementsAre(333333, 666667));
  EXPECT_THAT(SourceMix(std::vector<double>{1e9, 5e8}).shares(), ElementsAre(2, 1));
}

TEST(SourceMixTest, OtherWeightsAreRoundedToTheLongestPeriod) {
  const SourceMix mix(std::vector<double>{M_PI, 1e-9, M_E});
  EXPECT_EQ(mix.period(), kMixPeriodMax);
  EXPECT_EQ(mix.shares()[1], 1);
  EXPECT_NEAR(static_cast<double>(mix.shares()[0]) / static_cast<double>(kMixPeriodMax),
              M_PI / (M_PI + M_E), 2e-6);
}

TEST(SourceMixTest, ThePartsThatAreLeftGoToTheLargestRemainders) {
  const std::vector<double> weights = {M_PI, M_E, M_SQRT2, M_LN2, M_LN10};
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const SourceMix mix(weights);
  double least_up = 1, most_down = 0;  // remainders
  for (size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / sum * static_cast<double>(kMixPeriodMax);
    const double remainder = exact - std::floor(exact);
    if (static_cast<double>(mix.shares()[i]) > exact) {
      least_up = std::min(least_up, remainder);
    } else {
      most_down = std::max(most_down, remainder);
    }
  }
  EXPECT_LT(least_up, 1);
  EXPECT_LT(most_down, least_up);
}

TEST(SourceMixTest, ManySourcesHaveAShorterPeriod) {
  std::vector<double> weights;
  for (size_t i = 0; i < kMixSourcesMax; ++i) weights.push_back(1 + std::sqrt(i));
  const SourceMix mix(weights);
  EXPECT_LE(mix.period(), kMixPeriodMax / 8);
  EXPECT_EQ(std::accumulate(mix.shares().begin(), mix.shares().end(), int64_t{0}), mix.period());
}

}  // namespace
}  // namespace megatrain
